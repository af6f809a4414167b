"""The host of stateful groups without Spark: batches of source rows in, rows for the sink out."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mesh.model.cluster import Assignment
from mesh.plan.build import plan
from mesh.spark import partition_task
from mesh.spark.instance_io import InstanceIO, LocalState
from mesh.spark.partition_task import MESSAGE, RANGE_END, RANGE_START
from pyspark_nats.source.rows import MARKED
from tests.support.host_batches import Batches

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("is_live", [True, False])
def test_time_passes_in_batches_without_events(tmp_path: Path, is_live: bool) -> None:
    batches = Batches(tmp_path)
    found = []
    for now_ms, numbers in ((1000, (1,)), (1200, (2,)), (1600, ()), (1600, ()), (1800, ())):
        found.append(batches.run(now_ms, *numbers))
        if not is_live:
            partition_task.LIVE_STATES.clear()
    assert found == [[[1, 1]], [[2, 2]], [[1, 1]], [], [[2, 0]]]


def test_a_batch_that_runs_again_starts_from_the_state_before_it(tmp_path: Path) -> None:
    batches = Batches(tmp_path)
    batches.run(1000, 1)
    before = batches.position
    first = batches.run(1200, 2)
    batches.position = before
    assert batches.run(1200, 2) == first == [[2, 2]]


@pytest.mark.parametrize("is_live", [True, False])
def test_a_state_takes_only_what_it_has_not_taken_yet(tmp_path: Path, is_live: bool) -> None:
    before = Batches(tmp_path / "before")
    before.run(1000, 1)
    before.run(1000, 2)
    made = LocalState(tmp_path / "before" / "0")
    snapshot = made.manifest(before.position)
    assert snapshot is not None

    after = Batches(tmp_path / "after", restored=frozenset({0}))
    local = LocalState(tmp_path / "after" / "0")
    shutil.copytree(made.directory, local.directory, ignore=shutil.ignore_patterns("*.manifest"))
    local.put_restored(snapshot)
    # Another partition of the instance is at the beginning, so both read from there.
    found = []
    for number in (1, 2, 3):
        found += after.run(1000, number)
        if not is_live:
            partition_task.LIVE_STATES.clear()
    assert found == [[3, 3]]
    last = local.manifest(after.position)
    assert last is not None
    assert not last.ahead


def test_the_state_of_an_ended_instance_goes_with_the_next_task(tmp_path: Path) -> None:
    partition_task.LIVE_STATES.clear()
    ended, running = Batches(tmp_path / "ended"), Batches(tmp_path / "running")
    ended.run(1000, 1)
    running.run(1000, 1)
    assert len(partition_task.LIVE_STATES) == 2
    shutil.rmtree(tmp_path / "ended")
    running.run(1000, 2)
    assert [key[0] for key in partition_task.LIVE_STATES] == [str(tmp_path / "running")]


JOINED = """@App:name('Beats')
define stream Beats (n int);
define stream Words (n int);
from Beats join Words#window.length(1) as w select Beats.n as beat, w.n as word insert into Both;
"""
#: Each with its stream, the broker's time, and its own time if it has one.
TOLD = (
    ("Beats", 1_010, 1_000), ("Beats", 2_010, 2_000), ("Words", 2_500, None),
    ("Beats", 3_010, 3_000), ("Beats", 4_010, 4_000), ("Words", 4_500, None),
    ("Beats", 5_010, 5_000), ("Beats", 5_510, 5_500),
)  # fmt: skip


@pytest.mark.parametrize("names", [("Beats", "Words"), ("Words", "Beats")])
@pytest.mark.parametrize(
    "ends_ms", [(6_000,), (2_600, 6_000), (1_500, 2_200, 2_700, 3_005, 6_000), (2_010, 6_000)]
)
def test_a_stream_that_had_nothing_yet_comes_in_where_it_belongs(
    tmp_path: Path, ends_ms: tuple[int, ...], names: tuple[str, str]
) -> None:
    (group,) = plan(JOINED).spec.groups
    assignment = Assignment(group.instances[0], "Beats", group.name, 1, "w", "i", 1, 0)
    io = InstanceIO(group, assignment)
    task = partition_task.PartitionTask(io, str(tmp_path), frozenset())
    streams = {i.channel.stream.name: (s, i) for s, i in io.input_streams(0).items()}
    places = {streams[name][0]: {"sequence": 0, "time_ms": 0} for name in names}
    found: list[Any] = []
    begin_ms = 0
    for end_ms in ends_ms:
        rows: list[dict[str, Any]] = [
            {"kind": partition_task.RANGE_START, "stream": stream, **place}
            for stream, place in places.items()
        ]
        for name in names:
            stream, one = streams[name]
            for number, (of, broker_ms, own_ms) in enumerate(TOLD):
                if of == name and begin_ms < broker_ms <= end_ms:
                    places[stream]["sequence"] += 1
                    rows.append(
                        {
                            "kind": partition_task.MESSAGE, "stream": stream, "time_ms": broker_ms,
                            "sequence": places[stream]["sequence"], "event_time_ms": own_ms,
                            "subject": one.channel.subject(), "content_type": "application/json",
                            "data": json.dumps({"n": number}).encode(),
                        }
                    )  # fmt: skip
            places[stream]["time_ms"] = end_ms
        rows += [
            {"kind": partition_task.RANGE_END, "stream": stream, **place}
            for stream, place in places.items()
        ]
        begin_ms = end_ms
        batch = pa.RecordBatch.from_pylist(rows, MARKED)
        for made in task([batch]):
            events: list[Any] = made["data"].to_pylist()
            found += [list(json.loads(event).values()) for event in events]
    assert found == [[3, 2], [4, 2], [6, 5]]


SHOWN = """@App:name('A')
define stream S (n int);
from S select n output snapshot every 1 sec insert into T;
"""
DAY_MS = 86_400_000


@pytest.mark.parametrize("owns", [(True, True), (True, False), (False, True), (False, False)])
def test_a_gap_that_a_client_makes_has_few_rows(tmp_path: Path, owns: tuple[bool, ...]) -> None:
    (group,) = plan(SHOWN).spec.groups
    io = InstanceIO(group, Assignment(group.instances[0], "A", group.name, 1, "w", "i", 1, 0))
    task = partition_task.PartitionTask(io, str(tmp_path), frozenset())
    ((stream, one),) = io.input_streams(0).items()
    count, place = 0, {"sequence": 0, "time_ms": 0}
    for number, (is_own, time_ms) in enumerate(zip(owns, (1000, 2 * DAY_MS), strict=True), 1):
        row = {
            "kind": partition_task.MESSAGE, "stream": stream, "time_ms": time_ms,
            "sequence": number, "event_time_ms": time_ms if is_own else None,
            "subject": one.channel.subject(), "content_type": "application/json",
            "data": b'{"n": 1}',
        }  # fmt: skip
        end = {"sequence": number, "time_ms": time_ms}
        edges = [
            {"kind": kind, "stream": stream, **at}
            for kind, at in ((partition_task.RANGE_START, place), (partition_task.RANGE_END, end))
        ]
        batch = pa.RecordBatch.from_pylist([edges[0], row, edges[1]], MARKED)
        count += sum(made.num_rows for made in task([batch]))
        place = end
    # Without a time of a client, two days have really passed.
    assert (100_000 <= count < 140_000) is any(owns)
    assert any(owns) or count == 2 * DAY_MS // 1000 - 1


def test_what_was_put_out_before_a_restore_is_passed_over() -> None:
    messages = pa.record_batch({"sequence": pa.array(range(1, 11), pa.int64())})
    kept = partition_task.without_skipped(messages, "sequence", [(2, 4), (7, 9)])
    assert kept.column("sequence").to_pylist() == [1, 2, 5, 6, 7, 10]
    assert partition_task.without_skipped(messages, "sequence", []) is messages


def test_objects_in_the_json_of_clients_reach_queries(tmp_path: Path) -> None:
    app = (
        "@App:name('Fade') define stream Sparks (k string, o object); "
        "from Sparks#window.length(2) select k, json:getInt(o, '$.n') as n, "
        "json:getString(o, '$.t[0]') as t, count() as seen insert into Gone;"
    )
    batches = Batches(tmp_path, app=app)
    (stream,) = batches.io.input_streams(0)
    place = {"stream": stream, "time_ms": 1000}
    sent = [{"k": "a", "o": {"n": 1, "t": ["x"]}}, {"k": "b", "o": None}, {"k": "c", "o": "{"}]
    rows: list[dict[str, Any]] = [{"kind": RANGE_START, **place, "sequence": 0}]
    rows += [
        {
            "kind": MESSAGE, **place, "sequence": at, "subject": "mesh.Fade.Sparks",
            "content_type": "application/json", "data": json.dumps(one).encode(),
        }
        for at, one in enumerate(sent, 1)
    ]  # fmt: skip
    rows.append({"kind": RANGE_END, **place, "sequence": len(sent)})
    made = [one for one in batches.task([pa.RecordBatch.from_pylist(rows, MARKED)]) if one.num_rows]
    subjects = [name for one in made for name in one["subject"].to_pylist()]
    texts = [json.loads(text or b"") for one in made for text in one["data"].to_pylist()]
    by_subject = list(zip(subjects, texts, strict=True))
    assert [text for name, text in by_subject if name == "mesh.Fade.Gone"] == [
        {"k": "a", "n": 1, "t": "x", "seen": 1}, {"k": "b", "n": None, "t": None, "seen": 2},
    ]  # fmt: skip
    # The third one is recorded as a failed event.
    assert len(by_subject) == 3
