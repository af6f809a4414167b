"""Reads of tables in databases, by runs that are repeated after a failure."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mesh.language.parser import parse
from mesh.operators.executor import Executor
from mesh.plan.bind import bind
from mesh.spark.store_output import StoreOutput
from tests.store.test_lookup_table import APP, change, in_database
from tests.store.test_tables import Event, events_of, runs_of
from tests.support.databases import new_database
from tests.support.recorder import stored

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.databases import TestDatabase

_numbers = itertools.count(1)


class Failing:
    """An executor whose process may end after any run, written or not, with its state or without.

    Runs are ``(stop, row)``: events up to ``stop``, and before them a row that another program
    writes, once.
    """

    def __init__(self, store: TestDatabase, events: list[Event]) -> None:
        self.app = bind(parse(APP.replace("{store}", in_database(store))))
        self.store, self.events, self.epoch = store, events, 0
        self.kept: tuple[int, Any] = (0, None)
        self.foreign = 0
        self.rows: dict[int, set[str]] = {}
        self.begin()

    def begin(self) -> None:
        self.epoch += 1
        self.executor = Executor(self.app, ("Known", "!"), salt="p")
        output = StoreOutput.of(self.executor, self.epoch)
        assert output is not None
        self.output = output
        self.at, state = self.kept
        if state is not None:
            self.executor.restore(state)
        self.output.recall(self.executor)

    def change(self, number: int) -> None:
        """Another program writes."""
        if number > self.foreign:
            self.foreign = number
            text = "INSERT OR REPLACE INTO #T# VALUES ('{k}', {n}, {v}, 1)"
            key = "abcE"[number % 4]
            change(self.store, text.format(k=key, n=number % 5, v=number % 3 - 1))
            change(self.store, f"DELETE FROM #T# WHERE #k# = '{'bcEa'[number % 4]}'")

    def run(self, stop: int, *, writes: bool = True, keeps: bool = True) -> None:
        runs = runs_of(self.events, self.at, stop)
        self.output.prepare()
        made = self.executor.run(runs, {"S": stop * 10})
        self.output.record(self.executor)
        # It leaves only now.
        for run in self.output.take(made):
            for position, row in zip(run.position.tolist(), run.rows.to_pylist(), strict=True):
                self.rows.setdefault(position, set()).add(str(row))
        self.at = stop
        if writes:
            self.output.commit()
            if keeps:
                self.kept = stop, stored(self.executor.snapshot())

    def end(self) -> None:
        self.output.close()
        self.begin()

    def table_rows(self) -> list[Any]:
        found = [self.store.rows(f'SELECT * FROM "{name}"') for name in ("T", "Pairs")]
        return [sorted(map(str, rows)) for rows in found]


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("others_write", [False, True])
def test_what_was_read_is_read_again_after_a_failure(tmp_path: Path, others_write: bool) -> None:
    """Runs that end anywhere, and are repeated in other cuts while another program writes."""
    chance = np.random.default_rng(5)
    for seed in range(2):
        events = events_of(24, seed)
        calm = Failing(new_database(None, tmp_path, f"calm{next(_numbers)}"), events)
        life = Failing(new_database(None, tmp_path, f"fails{next(_numbers)}"), events)
        try:
            for one in (calm, life):
                one.run(0)
            while calm.at < len(events):
                count, again, writes, keeps = chance.integers(0, [5, 4, 2, 2]).tolist()
                stop = min(calm.at + 1 + count, len(events))
                calm.run(stop)
                life.run(stop, writes=bool(writes) or not again, keeps=bool(keeps))
                if again:
                    life.end()
                    if others_write:
                        life.change(stop)
                    while life.at < stop:
                        life.run(min(life.at + again, stop))
            assert all(len(found) == 1 for found in life.rows.values()), (seed, life.rows)
            if not others_write:
                assert life.rows == calm.rows
                assert life.table_rows() == calm.table_rows()
        finally:
            calm.output.close()
            life.output.close()


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(4))
def test_what_was_read_is_read_again_where_lives_end_while_they_repeat(
    tmp_path: Path, seed: int
) -> None:
    """States of the middle of a repeated run are restored, while another program writes."""
    chance = np.random.default_rng(seed)
    life = Failing(new_database(None, tmp_path, f"again{next(_numbers)}"), events_of(40, seed))
    life.run(0)
    while life.at < len(life.events):
        count, writes, keeps = chance.integers(0, [5, 3, 2]).tolist()
        stop = min(life.at + 1 + count, len(life.events))
        life.run(stop, writes=bool(writes), keeps=bool(keeps))
        if not (writes and keeps):
            life.end()
            life.change(stop)
    life.output.close()
    assert all(len(found) == 1 for found in life.rows.values()), life.rows
    assert life.epoch > 10
