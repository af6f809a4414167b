"""An instance that fails the same way again and again: the message at fault is found."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.functions.script_switch import SWITCH
from mesh.model.cluster import Assignment, InstanceState
from mesh.plan.build import plan
from mesh.spark import repeated_failures, stateless_task, trial
from mesh.spark.instance_io import InstanceIO, RefusedMessage
from mesh.spark.partition_task import PartitionRun
from mesh.spark.repeated_failures import RepeatedFailures, Trial, search
from pyspark_nats.decode.result import USUAL
from pyspark_nats.protocol import connection
from tests.support.shared_query import begun

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mesh.spark.shared_query.members import Offsets
    from tests.support.environment import Variables
    from tests.support.shared_query import Hand


@dataclass
class Played:
    """Streams of messages of which some make a run fail."""

    last: Mapping[str, int]
    bad: set[tuple[str, int]]
    #: A run fails with or without messages.
    always: bool = False
    runs: int = 0
    kept: list[Offsets] = field(default_factory=list)

    def look(self, at: Offsets | None, rows: int) -> tuple[Offsets, Offsets]:
        begin = at or {name: {"sequence": 0} for name in self.last}
        ends: Offsets = {}
        for name, last in self.last.items():
            first = begin[name]["sequence"]
            ends[name] = {"sequence": min(last, first + rows)}
            rows -= ends[name]["sequence"] - first
        return begin, ends

    def run(
        self, at: Offsets, ends: Offsets, refused: tuple[RefusedMessage, ...], *, keeps: bool
    ) -> str:
        self.runs += 1
        left = self.bad - {(one.js_stream, one.sequence) for one in refused}
        hit = sorted(
            (name, sequence)
            for name, sequence in left
            if at[name]["sequence"] < sequence <= ends[name]["sequence"]
        )
        if hit or self.always:
            return f"Boom: {hit}"
        if keeps:
            self.kept.append(ends)
        return ""


@given(
    last=st.integers(0, 9000),
    other=st.integers(0, 50),
    bad=st.sets(st.integers(1, 9000), max_size=6),
)
def test_exactly_the_messages_at_fault_are_found(last: int, other: int, bad: set[int]) -> None:
    wanted = {("A", one) for one in bad if one <= last}
    part = Played({"A": last, "B": other}, wanted)
    found = search(part, (), "3 times")
    assert [(one.js_stream, one.sequence) for one in found] == sorted(wanted)
    assert part.runs <= 2 + last // 2048 + len(wanted) * (repeated_failures._ROWS.bit_length() + 4)
    assert all("failed 3 times at this message: Boom" in one.reason for one in found)


def test_nothing_is_found_where_no_message_is_at_fault() -> None:
    part = Played({"A": 5000}, set(), always=True)
    assert search(part, (), "3 times") == []
    assert part.runs < 20


def test_a_search_ends_with_its_instance() -> None:
    over = itertools.count()
    part = Played({"A": 5000}, {("A", 3)})
    assert search(part, (), "3 times", lambda: next(over) > 4) == []
    assert part.runs < 7


def test_equal_failures_alone_lead_to_a_search() -> None:
    failures = RepeatedFailures()
    for reason in ("Lost task 1.0 in stage 7", "Lost task 2.0 in stage 9", "KeyError: 'x'"):
        failures.note(reason)
    assert not failures.is_due
    for _ in range(3):
        failures.note("no answer from a stream: 5 s")
        failures.note("state is missing [MESH-S100]")
    failures.note("KeyError: 'x'")
    assert not failures.is_due
    failures.note("KeyError: 'x'")
    assert failures.is_due


def test_failures_that_differ_in_ids_alone_are_equal() -> None:
    failures = RepeatedFailures()
    for run in ("0aa2c9de-1f5b-4b0c-9d3e-00aa11bb22cc", "ffffffff-1f5b-4b0c-9d3e-0123456789ab"):
        failures.note(f"[STREAM_FAILED] Query [id = {run}, runId = {run}] terminated: Task 7 died")
    assert failures._count == 2


class Here:
    """A bounded process that is this one."""

    def call(self, limit_s: float, function: Any, *arguments: Any) -> Any:
        return getattr(trial, function.partition(":")[2])(*arguments)

    def stop(self) -> None:
        connection.close_shared()


@pytest.mark.nats
def test_the_message_is_recorded_and_the_rest_goes_on(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stateful, stateless = PartitionRun._run, stateless_task._CompiledQuery.run

    def run(one: PartitionRun, runs: Any) -> Any:
        is_sums = one._io.group.name == "sums"
        if is_sums and any(13 in r.rows.column("n").to_pylist() for r in runs):
            raise MemoryError("thirteen")
        return stateful(one, runs)

    def run_query(one: Any, events: Any) -> Any:
        if 13 in events.rows.column("n").to_pylist():
            raise MemoryError("thirteen")
        return stateless(one, events)

    monkeypatch.setattr(PartitionRun, "_run", run)
    monkeypatch.setattr(stateless_task._CompiledQuery, "run", run_query)
    app = begun(hand, "A")
    for one in app.by_group.values():
        one.context.failures.process = Here
    hand.publish("A", *range(1, 11))
    hand.until_rows("A", "Sums", 10)
    hand.publish("A", *range(11, 31))
    for _ in range(40):
        hand.step(0.1)
        for one in app.by_group.values():
            one.tick(one._clock.monotonic_s())
        hand.until_idle()
        if len(hand.rows("A", "Sums")) == 29 and len(hand.rows("A", "Large")) == 28:
            break
    left = [n for n in range(1, 31) if n != 13]
    assert hand.rows("A", "Large") == [[n * 10] for n in left if n > 1]
    assert hand.rows("A", "Sums") == [[sum(left[max(0, at - 2) : at + 1])] for at in range(29)]
    entries = sorted(hand.errors(), key=lambda entry: entry["group"])
    assert [(e["group"], e["sequence"]) for e in entries] == [("large", 13), ("sums", 13)]
    for entry in entries:
        assert (
            entry["reason"] == "the instance failed 3 times at this message: MemoryError: thirteen"
        )
        assert json.loads(entry["data"]) == {"n": 13}
    assert app.told("sums") is app.told("large") is InstanceState.RUNNING


DEADLY = """@App:name('A')
define function deadly[python] return int {{
    import os
    if data[0] == 13:
        os.kill(os.getpid(), 9)
    return data[0]
}};
define stream Numbers (n int);
@dist(execGroup='deadly') from Numbers{window} select deadly(n) as n insert into Out;
"""


@pytest.mark.slow
@pytest.mark.nats
@pytest.mark.sampled(2)
@pytest.mark.parametrize("window", ["", "#window.length(2)"])
def test_a_message_that_kills_the_process_is_found(
    hand: Hand, tmp_path: Path, environment: Variables, window: str
) -> None:
    environment[SWITCH] = "true"
    spec = plan(DEADLY.format(window=window)).spec
    hand.make(spec)
    hand.publish("A", *range(1, 31))
    (group,) = spec.groups
    io = InstanceIO(group, Assignment(group.instances[0], "A", group.name, 1, "w", "i", 1, 0))
    key = "0" if group.stateful else "mesh-A-Numbers"
    tried = Trial(io, key, str(tmp_path), hand.nats, USUAL, None, False)
    process = repeated_failures._process()
    try:
        (found,) = search(repeated_failures._PartProcess(tried, process), (), "3 times")
    finally:
        process.stop()
    assert (found.js_stream, found.sequence) == ("mesh-A-Numbers", 13)
    assert found.reason.endswith("Its process died.")
