"""Playback whose clock advances without events: by the broker's time, however ranges are cut."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.errors import MeshError
from mesh.plan.build import plan
from mesh.spark import partition_task
from mesh.spark.live_partition import IdleTime
from mesh.spark.partition_task import MESSAGE, RANGE_END, RANGE_START
from pyspark_nats.source.rows import MARKED
from tests.support.examples import examples
from tests.support.host_batches import APP, Batches

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: A second of the broker's time without events is 300 ms of the app's.
IDLE = f"@App:playback(idle.time='1 sec', increment='300 millisec')\n{APP}"
#: The broker's time of an event and its own.
Told = tuple[int, int]


def play(
    directory: Path, told: Sequence[Told], ends_ms: Sequence[int], app: str = IDLE
) -> tuple[list[Any], list[int | None]]:
    """The output of ranges with these ends, and when each time the next batch is due."""
    batches = Batches(directory, app=app)
    partition_task.LIVE_STATES.clear()
    (stream,) = batches.io.input_streams(0)
    place = {"stream": stream, "sequence": 0, "time_ms": 0}
    found: list[Any] = []
    due: list[int | None] = []
    taken = 0
    for end_ms in ends_ms:
        rows: list[dict[str, Any]] = [{"kind": RANGE_START, **place}]
        while taken < len(told) and told[taken][0] <= end_ms:
            broker_ms, own_ms = told[taken]
            taken += 1
            rows.append(
                {
                    "kind": MESSAGE, "stream": stream, "sequence": taken, "time_ms": broker_ms,
                    "event_time_ms": own_ms, "subject": "mesh.Fade.Sparks",
                    "content_type": "application/json", "data": json.dumps({"n": taken}).encode(),
                }
            )  # fmt: skip
        place = {"stream": stream, "sequence": taken, "time_ms": end_ms}
        rows.append({"kind": RANGE_END, **place})
        for made in batches.task([pa.RecordBatch.from_pylist(rows, MARKED)]):
            events = zip(made["data"].to_pylist(), made["event_time_ms"].to_pylist(), strict=True)
            found += [[*json.loads(data or b"{}").values(), at_ms] for data, at_ms in events]
        (live,) = (p for _, p in partition_task.LIVE_STATES.values())
        due.append(live.wakeup_ms())
        # The next batch restores what is stored.
        partition_task.LIVE_STATES.clear()
    return found, due


def test_the_clock_advances_by_steps(tmp_path: Path) -> None:
    # The window lasts for 500 ms: two ticks, at 12 and 13 seconds.
    found, due = play(tmp_path, [(11_000, 5_000)], [11_500, 12_000, 12_999, 13_000, 20_000])
    assert found == [[1, 1, 5_000], [1, 0, 5_500]]
    assert due == [13_000, 13_000, 13_000, None, None]


def test_an_event_begins_the_idle_time_again(tmp_path: Path) -> None:
    told = [(11_000, 5_000), (11_900, 5_100), (12_850, 5_200), (15_000, 5_300)]
    found, _ = play(tmp_path, told, [30_000])
    # Two ticks before the last event: at 13.85 and 14.85 the clock is 5,500 and 5,800.
    assert [one[:2] for one in found] == [
        [1, 1],
        [2, 2],
        [3, 3],
        [1, 2],
        [2, 1],
        [3, 0],
        [4, 1],
        [4, 0],
    ]


@settings(max_examples=examples(60), deadline=None)
@given(
    gaps=st.lists(st.tuples(st.integers(0, 2_500), st.integers(0, 700)), min_size=1, max_size=8),
    cuts=st.lists(st.integers(10_000, 32_000), max_size=6),
)
def test_however_ranges_are_cut(
    gaps: list[Told], cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    told = [(10_000, 5_000)]
    for broker_ms, own_ms in gaps:
        told.append((told[-1][0] + broker_ms, told[-1][1] + own_ms))
    directory = tmp_path_factory.mktemp("cut")
    calm, _ = play(directory / "calm", told, [40_000])
    cut, _ = play(directory / "cut", told, [*sorted(set(cuts)), 40_000])
    assert cut == calm


def test_ticks_are_counted() -> None:
    idle = IdleTime(1_000, 300)
    assert (idle.passed(99_000), idle.due_ms(1)) == (0, None)
    idle.since_ms = 1_000
    assert (idle.passed(1_999), idle.passed(2_000), idle.passed(5_500)) == (0, 300, 900)
    assert (idle.since_ms, idle.due_ms(301), idle.due_ms(0)) == (5_000, 7_000, 6_000)


def test_several_inputs_are_refused() -> None:
    text = IDLE.replace(
        "from Sparks#", "define stream More (n int); from More insert into Gone2;\nfrom Sparks#"
    )
    with pytest.raises(MeshError, match="MESH-P900"):
        plan(text)
    assert plan(text.replace("from More", "@dist(execGroup='b') from More")).spec.groups
    assert plan(IDLE.replace("1 sec", "0 sec")).spec.groups
