"""Assignment of events to the virtual partitions of a keyed channel, and of labels to partitions.

A key is attributes, a computed value, or ranges with labels.  Attributes and values are compared as
text.  An event in several ranges belongs to the partition of each label; an event in no range
belongs to none.  A partition ignores the labels of others, so each is processed once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.functions.scripts import compile_scripts
from mesh.language.parser import parse
from mesh.model.partition import few_partitions, partitions
from mesh.operators.expressions import Environment, Frame, compile_expression, compile_filter, using
from mesh.plan.aggregation_tables import with_divided_joins
from mesh.plan.bind import bind
from mesh.plan.strategies import partition_key
from mesh.spark import sink_rows
from pyspark_nats.few_rows import FewRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mesh.functions.vectors import Mask, Vector
    from mesh.model.app import Channel
    from mesh.operators.base import EventBatch, Longs
    from mesh.plan.bound import BoundApp, BoundKey
    from pyspark_nats.arrow import ArrowArray


def channel_rows(
    channel: Channel,
    text: str,
    producer: str,
    rows: pa.RecordBatch,
    position: Longs,
    event_time_ms: Any | None,
    events: Callable[[], EventBatch] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows for the sink that carry ``rows`` to a channel, each to its partition if it has a key.

    Args:
        channel: the target.
        text: of the publishing group.
        producer: the name of the producer in markers; each partition has its own markers.
        rows: n events.
        position: int64[n], growing.
        event_time_ms: int64[n], null for events with the broker's time; None when all do.
        events: gives ``rows`` as events, for computed keys.
    """
    if not channel.is_keyed:
        yield from sink_rows.event_rows(channel, producer, rows, position, _if_any(event_time_ms))
        return
    for number, chosen in split_by_partition(channel, text, rows, events):
        if len(chosen) == rows.num_rows and not channel.computed:
            times = _if_any(event_time_ms)
            yield from sink_rows.event_rows(channel, producer, rows, position, times, number)
            return
        at: Any = pa.array(chosen)
        times = event_time_ms.take(at) if event_time_ms is not None else None
        yield from sink_rows.event_rows(
            channel, producer, rows.take(at), position[chosen], _if_any(times), number
        )


def _if_any(times: ArrowArray | None) -> ArrowArray | None:
    return None if times is None or times.null_count == len(times) else times


def split_by_partition(
    channel: Channel,
    text: str,
    rows: pa.RecordBatch,
    events: Callable[[], EventBatch] | None = None,
) -> Iterator[tuple[int, Longs]]:
    """Target partitions of ``rows``, each with its rows in order.

    Args:
        channel: a keyed one.
        text: of the publishing group; its partition defines the computed keys.
        rows: of the channel's stream.
        events: gives ``rows`` as events, for computed keys.
    """
    if not channel.computed:
        if isinstance(rows, FewRows):
            few = few_partitions([rows.lists[name] for name in channel.key], channel.partitions)
            if few is not None:
                yield from _by_number(np.arange(rows.num_rows), np.array(few))
                return
        place = partitions([rows.column(name) for name in channel.key], channel.partitions)
        yield from _by_number(np.arange(rows.num_rows), place)
        return
    assert events is not None, "a channel with a computed key is filled from a stream's events"
    computing = _computing(text, channel.stream.name, channel.computed)
    frame = Frame.of_events(events())
    if computing.value is not None:
        keys = computing.value(frame).to_arrow(rows.num_rows)
        yield from _by_number(np.arange(rows.num_rows), partitions([keys], channel.partitions))
        return
    inside = np.zeros((rows.num_rows, channel.partitions), dtype=np.bool_)
    homes = label_partitions(computing.labels, channel.partitions)
    for passes, home in zip(computing.ranges, homes.tolist(), strict=True):
        inside[:, home] |= np.broadcast_to(passes(frame), rows.num_rows)
    row, place = np.nonzero(inside)
    yield from _by_number(row, place)


def restrict_to_partition(app: BoundApp, partition: int, count: int) -> BoundApp:
    """``app`` for one of ``count`` partitions: of its ranges, those with labels of this one.

    Its joins with aggregations know what divides them.
    """
    if count == 1:
        return app
    if app.aggregations:
        app = with_divided_joins(app)
    if not any(key.ranges for p in app.partitions for key in p.keys):
        return app
    changed = (
        replace(p, keys=tuple(_owned(key, partition, count) for key in p.keys))
        for p in app.partitions
    )
    return replace(app, partitions=tuple(changed))


def label_partitions(labels: tuple[str, ...], count: int) -> Longs:
    """int64[n], the partition of each label."""
    return partitions([pa.array(labels, pa.string())], count)


def _owned(key: BoundKey, partition: int, count: int) -> BoundKey:
    if not key.ranges:
        return key
    homes = label_partitions(tuple(r.label for r in key.ranges), count)
    ranges = (r for r, home in zip(key.ranges, homes, strict=True) if home == partition)
    return replace(key, ranges=tuple(ranges))


def _by_number(row: Longs, place: Longs) -> Iterator[tuple[int, Longs]]:
    for number in np.unique(place).tolist():
        yield number, row[place == number]


@dataclass(frozen=True, slots=True)
class _Computing:
    """A compiled computed key: a value, or conditions with their labels."""

    value: Callable[[Frame], Vector] | None
    ranges: tuple[Callable[[Frame], Mask], ...]
    labels: tuple[str, ...]


@cache
def _computing(text: str, stream: str, computed: str) -> _Computing:
    tree = parse(text)
    app = bind(tree)
    key = next(
        bound
        for written, partition in zip(tree.partitions, app.partitions, strict=True)
        for one, bound in zip(written.keys, partition.keys, strict=True)
        if bound.stream == stream and partition_key(one, bound).computed == computed
    )
    with using(Environment(compile_scripts(app.scripts))):
        value = compile_expression(key.value) if key.value is not None else None
        ranges = tuple(compile_filter(r.condition) for r in key.ranges)
    return _Computing(value, ranges, tuple(r.label for r in key.ranges))
