"""Refused rows are told once, whenever the process ends.

What is published is what a run has made, as a whole, and a repeat is dropped by producer and
position, as the sink does.
"""

from __future__ import annotations

import os
import shutil
import signal
import traceback
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
import sqlalchemy as sa

from mesh.spark import partition_task
from mesh.spark.instance_io import InputPosition
from mesh.spark.store_output import StoreOutput
from mesh.store import writer
from mesh.store.engine import engine_of
from tests.store.test_refusals import RULES, colliding, refusing, rows_in, run_sql
from tests.support.trades import Node, end_partitions
from tools.conformance.script import StepCall
from tools.conformance.spark_rows import marked_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.databases import TestDatabase


class Refusing(Node):
    """A node whose output is published at the end of each run, into a file."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.directory.mkdir(parents=True)

    @property
    def published(self) -> list[dict[str, Any]]:
        """The publications, one of each run."""
        path = self.directory / "published"
        return (
            [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
        )

    @property
    def position(self) -> InputPosition:
        """Behind the output that is published."""
        runs = self.published
        streams = list(self._io.input_streams(0))
        at = runs[-1]["at"] if runs else {s: {"sequence": 0, "time_ms": 0} for s in streams}
        return InputPosition.of(at, streams)

    def publish(self, at: dict[str, Any], made: list[dict[str, Any]]) -> None:
        done = {(one["producer"], one["position"]) for run in self.published for one in run["rows"]}
        new = [one for one in made if (one["producer"], one["position"]) not in done]
        with (self.directory / "published").open("ab") as file:
            file.write(orjson.dumps({"at": at, "rows": new}) + b"\n")

    def errors(self) -> list[str]:
        """The failed events that are published, in order."""
        rows = [one for run in self.published for one in run["rows"]]
        found = [orjson.loads(one["data"]) for one in rows if one["stream"] == self._io.errors[0]]
        return [orjson.loads(one["data"])["k"] for one in found]

    def play(self, now_ms: int, events: list[tuple[str, int | None, str]]) -> None:
        types = (pa.string(), pa.int32(), pa.string())
        columns = zip(*events, strict=True) if events else ((), (), ())
        arrays = [pa.array(list(c), t) for c, t in zip(columns, types, strict=True)]
        rows = pa.RecordBatch.from_arrays(arrays, names=["k", "n", "v"])
        times = np.full(len(events), now_ms)
        sent = StepCall(now_ms, "S", times, rows) if events else StepCall(now_ms)
        task = partition_task.PartitionTask(self._io, str(self.run_directory), frozenset())
        batch, ends = marked_rows(self._io.input_streams(0), self.position, 0, sent)
        made = [
            {**one, "data": one["data"].decode()}
            for out in task([batch])
            for one in out.select(["stream", "data", "producer", "position"]).to_pylist()
        ]
        reach("before the publication")
        self.publish(ends.offsets, made)
        reach("after the publication")


RUNS: list[list[tuple[str, int | None, str]]] = [
    [("a", 1, "x"), ("check", -1, "x")],
    [("b", 2, "x"), ("unique", 1, "x"), ("c", 3, "x")],
    [],
    [("null", None, "x"), ("long", 7, "too long"), ("d", 4, "x")],
    [("a", -3, "x"), ("e", 5, "x")],
    [("f", 6, "x")],
    [("g", 8, "x")],
]
STEPS = (
    "before the marker",
    "at a savepoint",
    "at the refused rows",
    "before the commit",
    "after the commit",
    "when refused rows are read",
    "when refused rows are deleted",
    "after the state",
    "before the publication",
    "after the publication",
)
_deadly: list[str] = []


def reach(step: str) -> None:
    if step in _deadly:
        os.kill(os.getpid(), signal.SIGKILL)


def arm(store: TestDatabase) -> None:
    engine = engine_of(store.database)

    def on_statement(_c: Any, _u: Any, statement: str, *_more: Any) -> None:
        start = statement.replace("`", "").replace('"', "")
        if start.startswith("UPDATE mesh_marker SET position"):
            reach("before the marker")
        if start.startswith("INSERT INTO mesh_refused"):
            reach("at the refused rows")
            if "before the commit" in _deadly:
                sa.event.listen(engine, "commit", lambda _c: reach("before the commit"))
        if start.startswith("SELECT mesh_refused"):
            reach("when refused rows are read")
        if start.startswith("DELETE FROM mesh_refused"):
            reach("when refused rows are deleted")

    sa.event.listen(engine, "before_cursor_execute", on_statement)
    sa.event.listen(engine, "savepoint", lambda _c, _n: reach("at a savepoint"))
    committed, kept = StoreOutput.commit, partition_task.PartitionTask.end_batch

    def commit(self: StoreOutput, since_ms: int = 0) -> None:
        committed(self, since_ms)
        if self.has_committed:
            reach("after the commit")

    def keep(self: Any, *given: Any) -> None:
        kept(self, *given)
        reach("after the state")

    StoreOutput.commit = commit  # type: ignore[method-assign]
    partition_task.PartitionTask.end_batch = keep  # type: ignore[assignment, method-assign]


def attempt(work: Callable[[], None]) -> bool:
    """Work in a process of its own; whether it was killed."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "an error in the process"
    return os.WIFSIGNALED(status)


def play(node: Refusing, store: TestDatabase, deadly: int = -1, step: str = "") -> None:
    """Play the runs that are not published; at the deadly one and after it, a step ends it."""
    if not node.published:
        # No snapshot can be older.
        shutil.rmtree(node.run_directory, ignore_errors=True)
    for number, events in enumerate(RUNS):
        if number >= len(node.published):
            _deadly[:] = [step] if number >= deadly >= 0 else []
            given = [
                (k, colliding(store, 1) if k == "unique" else n, text) for k, n, text in events
            ]
            node.play(1_000_000 + number * 1000, given)


@pytest.mark.extended
@pytest.mark.parametrize("copy_rows", [1, 1000], ids=["bulk", "few"])
def test_each_refused_row_is_told_once_after_a_kill_at_any_step(
    store: TestDatabase, tmp_path: Path, copy_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "COPY_ROWS", copy_rows)
    expected = ["check", "unique", "null", "long", "a"]
    run_sql(store, RULES)
    text = refusing(store.store())
    for step in STEPS:
        for deadly in (0, 3):
            node = Refusing(tmp_path / f"{step}-{deadly}", text)

            def deadly_life(node: Refusing = node, deadly: int = deadly, step: str = step) -> None:
                arm(store)
                play(node, store, deadly, step)

            assert attempt(deadly_life), (step, deadly)
            assert not attempt(lambda node=node: play(node, store)), (step, deadly)  # type: ignore[misc]
            assert node.errors() == expected, (step, deadly)
            assert [row[:2] for row in rows_in(store)] == [
                ("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5), ("f", 6), ("g", 8),
            ], (step, deadly)  # fmt: skip
            # Those that have left are deleted.
            assert store.rows("select position from mesh_refused") == []
            for table in ("{q}T{q}", "mesh_marker", "mesh_reads"):
                run_sql(store, f"DELETE FROM {table}")
    end_partitions()
