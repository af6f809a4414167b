"""Batches that are run again: the same rows are skipped, other rows are never taken for them."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_nats.arrow import arrow
from pyspark_nats.errors import DivergedError, OrderError
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.sink import marker_cache, messages_out, publish, sink_options
from pyspark_nats.sink.markers import Origin
from pyspark_nats.sink.producer_state import BatchDigest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAIR = ("S", "p")


def messages(batch_id: int, first: int, count: int, prefix: str = "") -> pa.RecordBatch:
    """``count`` messages of a batch, from its ``first`` on, each with its number."""
    data = [f"{prefix}{batch_id}/{n}".encode() for n in range(first, first + count)]
    return messages_out.with_schema_columns(
        arrow.record_batch({"data": pa.array(data, pa.binary())}),
        stream="S", subject="ev.S", producer="p",
        first_position=(batch_id << messages_out.ROWS_BITS) + first,
    )  # fmt: skip


def said(batch_id: int, count: int, prefix: str = "") -> list[bytes]:
    return [f"{prefix}{batch_id}/{n}".encode() for n in range(count)]


@pytest.fixture
def run(broker: Any) -> Iterator[Callable[..., None]]:
    """``run(batch_id, *batches)``: a task in a process of its own writes a batch."""
    broker.create("S")
    opened: list[Connection] = []

    def write(
        batch_id: int,
        *batches: pa.RecordBatch,
        run: str = "r",
        task: int = 0,
        epoch: int = 0,
        is_whole: bool = True,
    ) -> None:
        options = sink_options.sink_options({"servers": broker.url, "epoch": str(epoch)})
        marker_cache.clear()
        opened.append(Connection(options.connection))
        publisher = publish.RowPublisher(
            opened[-1], options, Origin(f"{run}-{batch_id}", task, batch_id)
        )
        publisher.expect(PAIR)
        for batch in batches:
            publisher.add(batch)
        if is_whole:
            publisher.finish()
        else:
            publisher.atomic.settle()

    yield write
    for connection in opened:
        connection.close()


@pytest.mark.nats
def test_a_batch_that_is_run_again_adds_nothing_whatever_its_pieces(broker: Any, run: Any) -> None:
    run(4, messages(4, 0, 2500))
    run(5, messages(5, 0, 10))
    out = broker.payloads("S", "ev.S")
    run(4, messages(4, 0, 7), messages(4, 7, 2493))
    run(5, messages(5, 0, 3), messages(5, 3, 7), run="again")
    assert broker.payloads("S", "ev.S") == out == said(4, 2500) + said(5, 10)
    marker = broker.marker(*PAIR)
    assert [(w.batch_id, w.rows) for w in marker.recent] == [(4, 2500), (5, 10)]


@pytest.mark.nats
def test_a_batch_that_is_out_in_part_is_completed(broker: Any, run: Any) -> None:
    part = {"position": (7 << 32) + 1200, "epoch": 0, "run": "x", "task": 0}
    rows = messages(7, 0, 1201)
    digest = BatchDigest().updated(rows)
    broker.publish("ev.S", *rows.column("data").to_pylist())
    part["recent"] = [[7, 1201, digest.checksum]]
    broker.publish("mesh._marker.S.p", json.dumps(part))
    run(7, messages(7, 0, 900), messages(7, 900, 2100))
    assert broker.payloads("S", "ev.S") == said(7, 3000)


@pytest.mark.sampled(4)
@pytest.mark.nats
@pytest.mark.parametrize(
    ("batch_id", "again"),
    [
        (4, [messages(4, 0, 11)]),
        (4, [messages(4, 0, 9)]),
        (4, [messages(4, 0, 5), messages(4, 5, 5, "other ")]),
        (4, []),
        (5, [messages(5, 0, 1999)]),
        (5, [messages(5, 0, 1999), messages(5, 1999, 1, "other ")]),
        (5, [messages(5, 0, 1, "other "), messages(5, 1, 2999)]),
        (5, []),
    ],
)
def test_other_rows_in_a_batch_that_is_out_are_refused_and_nothing_is_written(
    broker: Any, run: Any, batch_id: int, again: list[pa.RecordBatch]
) -> None:
    run(4, messages(4, 0, 10))
    run(5, messages(5, 0, 2000))
    with pytest.raises(DivergedError, match=f"batch {batch_id} of producer"):
        run(batch_id, *again)
    assert broker.payloads("S", "ev.S") == said(4, 10) + said(5, 2000)


@pytest.mark.nats
def test_more_rows_than_are_out_of_the_last_batch_are_those_that_were_missing(
    broker: Any, run: Any
) -> None:
    # The task was killed between its chunks: the stored rows are a prefix of those run again.
    run(5, messages(5, 0, 1000), is_whole=False)
    assert broker.payloads("S", "ev.S") == said(5, 999)
    run(5, messages(5, 0, 1500))
    assert broker.payloads("S", "ev.S") == said(5, 1500)


@pytest.mark.nats
def test_a_batch_too_far_back_can_not_be_compared(broker: Any, run: Any) -> None:
    for batch_id in range(20):
        run(batch_id, messages(batch_id, 0, 1))
    with pytest.raises(
        DivergedError, match="is too many batches earlier than its output to be compared"
    ):
        run(2, messages(2, 0, 1))
    run(19, messages(19, 0, 1))
    assert len(broker.payloads("S", "ev.S")) == 20


@pytest.mark.nats
def test_a_batch_that_had_no_rows_must_have_none_again(broker: Any, run: Any) -> None:
    run(4, messages(4, 0, 1))
    run(5)
    run(6, messages(6, 0, 1))
    run(5)
    with pytest.raises(DivergedError, match="0 messages are out"):
        run(5, messages(5, 0, 1))


@pytest.mark.nats
def test_two_partitions_with_rows_of_one_producer_are_refused(broker: Any, run: Any) -> None:
    run(4, messages(4, 0, 10), task=0)
    with pytest.raises(OrderError, match="come from two Spark partitions in one batch"):
        run(4, messages(4, 10, 10), task=1)
    # Another attempt of the same task is not another partition, and another run starts again.
    run(4, messages(4, 0, 10), task=0)
    run(4, messages(4, 0, 10), task=1, run="later")
    assert len(broker.payloads("S", "ev.S")) == 10


ROWS = st.lists(
    st.tuples(st.binary(max_size=5), st.sampled_from(["a", "bb"]), st.none() | st.integers(0, 9)),
    min_size=1, max_size=30,
)  # fmt: skip


def rows_of(values: list[tuple[bytes, str, int | None]]) -> pa.RecordBatch:
    data, subjects, times = zip(*values, strict=True)
    batch = arrow.record_batch(
        {
            "data": pa.array(data, pa.binary()),
            "subject": pa.array(subjects, pa.string()),
            "event_time_ms": pa.array(times, pa.int64()),
        }
    )
    return messages_out.with_schema_columns(
        batch, stream="S", subject="", producer="p", first_position=0
    )


@given(ROWS, st.lists(st.integers(0, 30), max_size=5))
def test_a_digest_does_not_depend_on_the_cuts(
    values: list[tuple[bytes, str, int | None]], cuts: list[int]
) -> None:
    rows = rows_of(values)
    bounds = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    digest = BatchDigest()
    for first, last in pairwise(bounds):
        digest = digest.updated(rows.slice(first, last - first))
    assert digest == BatchDigest().updated(rows)


@given(ROWS, ROWS)
def test_a_digest_tells_rows_apart(
    values: list[tuple[bytes, str, int | None]], others: list[tuple[bytes, str, int | None]]
) -> None:
    digests = [BatchDigest().updated(rows_of(v)) for v in (values, others)]
    same = [(v[0], v[1], v[2]) for v in values] == [(v[0], v[1], v[2]) for v in others]
    assert (digests[0].checksum == digests[1].checksum) == same


def test_fitting_keeps_rows_of_one_position_together() -> None:
    rows = messages(0, 0, 10)
    positions = pa.array(np.array([0, 1, 5, 5, 5, 6, 9, 9, 9, 9]))
    rows = rows.set_column(6, "position", positions)
    assert messages_out.fitting(rows, 0, 4, 1 << 20) == 2
    assert messages_out.fitting(rows, 2, 4, 1 << 20) == 4
    assert messages_out.fitting(rows, 6, 3, 1 << 20) == 4
    assert messages_out.fitting(rows, 5, 3, 1 << 20) == 1
