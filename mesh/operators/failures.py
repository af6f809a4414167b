"""Chunks with a failed event: which events are still processed, and how failures are reported.

The reference engine passes a chunk on as one, so a failure ends it: no event of the chunk is passed
on, and the events after the failed one aren't processed.  In a join or a pattern one event may
cause several chunks, one after the other, and so may an array in a window of batches: where one
fails, the later ones are dropped.  In a join the matches of each event are a chunk, and those of a
chunk of events one call: matches before the failure have been emitted, matches after it are not.

Failures without a fault stream leave the group on the channel ``FAILED``, in the total order and
with positions as any other output.  So they are recorded once, also after a replay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import orjson
import pyarrow as pa

from mesh.functions.objects import Opaque, from_binary, python_value, to_binary
from mesh.operators.base import CURRENT, RESET
from mesh.operators.total_order import instance_chunk_begins, run_begins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.operators.base import Bools, EventBatch, Longs
    from mesh.operators.expressions import Frame
    from pyspark_nats.arrow import ArrowArray

#: The channel of events on which queries failed; a stream can't be called so.
FAILED: Final = "!"
_ROWS: Final = pa.schema([(name, pa.string()) for name in ("query", "stream", "reason", "event")])


def stopped(frame: Frame, events: EventBatch) -> Bools:
    """bool[n], the unprocessed events: in a call the first that fails and all after it."""
    _forgive_resets(frame, events)
    result = np.zeros(len(events), dtype=np.bool_)
    if frame.failures:
        result[list(frame.failures)] = True
        first = _apart(frame, events)
        if not first.all():
            # Failures so far, less those up to where the call begins.
            count = np.cumsum(result)
            before = np.maximum.accumulate(np.where(first, count - result, 0))
            result = count > before
    return result


class FailureRouter:
    """Selects the events of each of several aggregators where one of their arguments may fail.

    Aggregators before the failed one have processed the event; the later ones have not.
    """

    def __init__(self, frame: Frame, events: EventBatch) -> None:
        self._frame = frame
        self._events = events
        self._before = frozenset(frame.failures)
        #: By row, the number of the first aggregator that failed.
        self._at: dict[int, int] = {}

    def note(self, number: int) -> None:
        """Record the failures of aggregator ``number`` since the last call."""
        if len(self._frame.failures) > len(self._at) + len(self._before):
            for row in self._frame.failures:
                if row not in self._before:
                    self._at.setdefault(row, number)

    def reaching(self, groups: Longs, number: int) -> Longs:
        """``groups`` of the events that reach aggregator ``number``; -1 for the others."""
        if not self._frame.failures:
            return groups
        ended = stopped(self._frame, self._events)
        first = _apart(self._frame, self._events)
        first[1:] |= ~ended[:-1]
        for row, at in self._at.items():
            if at > number and first[row]:
                ended[row] = False
        return np.where(ended, -1, groups)


def lost(frame: Frame, events: EventBatch) -> Bools:
    """bool[n], which events go nowhere; all of a call fail for the first reason in it."""
    ended = stopped(frame, events)
    if not frame.failures:
        return ended
    cause = np.cumsum(_apart(frame, events)) - 1
    reasons: dict[int, str] = {}
    for row in sorted(frame.failures):
        reasons.setdefault(int(cause[row]), frame.failures[row])
    number = np.cumsum(instance_chunk_begins(events)) - 1
    result: Bools = np.isin(number, number[ended])
    for row in np.flatnonzero(result & (events.kind != RESET)).tolist():
        frame.failures[row] = reasons[int(cause[row])]
    return result


def _apart(frame: Frame, events: EventBatch) -> Bools:
    """bool[n], the first event of each unit of failure: a chunk, a join's call or a whole cause."""
    if frame.calls is not None:
        return frame.calls()
    first = instance_chunk_begins(events)
    if frame.joint_path is None or len(first) < 2:
        return first
    others = run_begins(events.order, events.clock_ms, events.path, events.instance)
    # Each timer is a cause of its own.
    result: Bools = first & (others | (events.path == frame.joint_path))
    return result


def _forgive_resets(frame: Frame, events: EventBatch) -> None:
    """Drop failures of resets: the row of a reset has no values that could fail."""
    for row in [row for row in frame.failures if events.kind[row] == RESET]:
        del frame.failures[row]


def failure_events(
    query: str, stream: str, events: EventBatch, reasons: Sequence[str]
) -> EventBatch:
    """Events for the channel ``FAILED``: the query, the stream, the event as JSON, and the reason.

    Args:
        query: the name of the query that failed.
        stream: its input stream.
        events: n of them.
        reasons: of length n.
    """
    count = len(events)
    columns: list[ArrowArray] = [
        pa.array([query] * count, pa.string()),
        pa.array([stream] * count, pa.string()),
        pa.array(list(reasons), pa.string()),
        pa.array(_as_json(events.rows), pa.string()),
    ]
    return events.with_rows(pa.RecordBatch.from_arrays(columns, schema=_ROWS))


def failed_output(
    query: str,
    stream: str,
    schema: pa.Schema | None,
    events: EventBatch,
    reasons: Sequence[str],
) -> list[tuple[str, EventBatch]]:
    """Events on which a query failed, for the fault stream of ``schema`` or for ``FAILED``.

    Args:
        query: the name of the query.
        stream: its input stream.
        schema: of the stream's fault stream; None if that has no reader.
        events: n of them; those that leave a window are dropped, as they have been processed
            before and the engine only logs their failure.
        reasons: of length n.
    """
    came = np.flatnonzero(events.kind == CURRENT)
    if not len(came):
        return []
    events = events.take(came).outside()
    reasons = [reasons[row] for row in came.tolist()]
    names = schema.names[:-1] if schema is not None else []
    if schema is None or not set(names) <= set(events.rows.schema.names):
        return [(FAILED, failure_events(query, stream, events, reasons))]
    return [(f"!{stream}", faulted(schema, events, reasons))]


def faulted(schema: pa.Schema, events: EventBatch, reasons: Sequence[str]) -> EventBatch:
    """Events for a fault stream of ``schema``: their own attributes, followed by the reason."""
    values = to_binary([Opaque("java.lang.RuntimeException", reason) for reason in reasons])
    columns = [events.rows.column(name) for name in schema.names[:-1]]
    return events.with_rows(pa.RecordBatch.from_arrays([*columns, values], schema=schema))


def _as_json(rows: pa.RecordBatch) -> list[str]:
    """Each row as a JSON object; an object in it becomes its nearest JSON value."""
    columns = {}
    for field in rows.schema:
        # Operators keep numbers of their own beside attributes.
        if field.name.startswith("#"):
            continue
        column = rows.column(field.name)
        if pa.types.is_binary(field.type):
            columns[field.name] = [python_value(value) for value in from_binary(column)]
        else:
            columns[field.name] = column.to_pylist()
    return [
        orjson.dumps({name: values[row] for name, values in columns.items()}, default=str).decode()
        for row in range(rows.num_rows)
    ]
