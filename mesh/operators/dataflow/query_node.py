"""Query as a node: its input channels, and the target of its output and of its failures."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mesh.operators.base import CURRENT, RESET
from mesh.operators.dataflow.graph import CallbackRecorder, Outputs, as_current
from mesh.operators.expressions import current
from mesh.operators.failures import FAILED, failed_output, failure_events, faulted
from mesh.plan.bound import BoundStream
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from mesh.operators.base import Bools, EventBatch, State, Timeline
    from mesh.operators.query.results import RunningQuery
    from mesh.operators.tables import TableAction
    from mesh.plan.bound import BoundQuery

log = logging.getLogger(__name__)

#: Order, clock and path.
_Place = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class OutputTarget:
    """Target of a query's output.

    ``channel``: empty for tables; ``table`` then applies the output. ``leaves``: whether the
    channel is outside of the query's partition.
    """

    channel: str
    leaves: bool = False
    table: TableAction | None = None


class QueryNode:
    """A query between channels; ``channels``: by channel, the stream's name in the query.

    ``faults``: by stream, the schema of its fault stream if that has a reader.
    """

    def __init__(
        self,
        query: BoundQuery,
        running: RunningQuery,
        channels: Mapping[str, str],
        target: OutputTarget,
        faults: Mapping[str, pa.Schema],
    ) -> None:
        self._name = query.name
        self._channels = channels
        self._target = target
        self._faults = faults
        #: The target names the attributes; it may be defined with other names than the query's.
        self._schema = query.target.arrow
        self._streams = tuple(dict.fromkeys(channels.values()))
        #: Whether its rows combine several events.
        self._is_joint = not isinstance(query.input, BoundStream)
        self.query = running
        self.calls = CallbackRecorder(query.name)
        self._count = current().count_of("query", query.name)

    @property
    def takes_few(self) -> bool:
        """Whether the rows of events may be ``FewRows``; tables do not take them."""
        return self.query.takes_few and self._target.table is None

    def process(self, inputs: Mapping[str, Sequence[EventBatch]], timeline: Timeline) -> Outputs:
        """The output of the query for its target, and the events on which it failed."""
        named: dict[str, list[EventBatch]] = {}
        for channel, runs in inputs.items():
            named.setdefault(self._channels[channel], []).extend(runs)
        output = self.query.process(named, timeline)
        self.calls.record(output)
        self._count[0] += sum(len(run) for runs in named.values() for run in runs)
        self._count[1] += len(output)
        result: Outputs = []
        if self._target.table is not None:
            result += self._to_table(self._target.table, output, named)
        else:
            output = as_current(output)
            if self._target.leaves:
                output = output.outside()
            result.append((self._target.channel, output))
        if self.query.failures.entries:
            result += self._failed(named)
        return result

    def _to_table(
        self, table: TableAction, output: EventBatch, named: Mapping[str, Sequence[EventBatch]]
    ) -> Outputs:
        """Apply the output to the table; rows that it refuses are reported, as they are lost."""
        if output.kind.any():
            output = output.where(output.kind != RESET)
        outcome = table.perform(output)
        result: Outputs = []
        changes = table.changes(output)
        if changes is not None:
            channel, events = changes
            result.append((channel, events.outside()))
        streams = ", ".join(self._streams)
        for reasons, is_failed in ((outcome.refused, False), (outcome.failed, True)):
            if not reasons:
                continue
            rows = sorted(reasons)
            log.error("table refused rows", extra=fields(query=self._name, rows=len(rows)))
            lost = output.take(np.array(rows)).outside()
            why = [reasons[row] for row in rows]
            if is_failed:
                result += self._to_causes(named, lost, why)
            else:
                result.append((FAILED, failure_events(self._name, streams, lost, why)))
        return result

    def _to_causes(
        self, named: Mapping[str, Sequence[EventBatch]], failed: EventBatch, reasons: list[str]
    ) -> Outputs:
        """Failed output: the events that caused it, if their stream has a fault stream."""
        candidates = {stream: runs for stream, runs in named.items() if stream in self._faults}
        causes, has_cause = _failed_inputs(candidates, failed, reasons)
        outputs: Outputs = []
        for one in causes:
            events = faulted(self._faults[one.stream], one.events.outside(), one.reasons)
            outputs.append((f"!{one.stream}", events))
        # Events that leave a window have arrived before; the engine only logs their failures.
        rest = np.flatnonzero(~has_cause & (failed.kind == CURRENT))
        if len(rest):
            events = failed.take(rest).outside()
            why = [reasons[row] for row in rest]
            outputs.append(
                (FAILED, failure_events(self._name, ", ".join(self._streams), events, why))
            )
        return outputs

    def _failed(self, named: Mapping[str, Sequence[EventBatch]]) -> Outputs:
        """Events for the fault stream, where the stream has one; other failures are reported."""
        outputs: Outputs = []
        for events, reasons, origin in self.query.failures.entries:
            for reason in reasons[:1]:
                log.error("query failed on an event: %s", reason, extra=fields(query=self._name))
            if origin is None and self._is_joint:
                outputs += self._to_causes(named, events, reasons)
                continue
            stream = ", ".join(self._streams) if origin is None else origin
            outputs += failed_output(self._name, stream, self._faults.get(stream), events, reasons)
        self.query.failures.entries.clear()
        return outputs

    def next_time(self) -> int | None:
        """Due time of the query's next timer."""
        return self.query.next_time()

    def snapshot(self) -> State:
        """The query's state."""
        return self.query.snapshot()

    def restore(self, state: State) -> None:
        """Restore the query's state."""
        self.query.restore(state)


@dataclass(frozen=True, slots=True)
class _FailedInput:
    """Input events of a query, in order, with the reason of the failure that each caused."""

    stream: str
    events: EventBatch
    reasons: list[str]


def _failed_inputs(
    inputs: Mapping[str, Sequence[EventBatch]], failed: EventBatch, reasons: Sequence[str]
) -> tuple[list[_FailedInput], Bools]:
    """The events of one run that caused failures: a fault stream gets these.

    A query of several streams, and a table's condition, fail on the query's output; the engine
    reports the input event that caused it, with all events that were sent at once.  A failure that
    a timer caused has no such event.

    Source: observed on Siddhi 5.1.7; tests/cases/conformance/faults.jsonl.

    Args:
        inputs: the input of the query, by stream; only streams with a reader of failures.
        failed: n rows that the query emitted, with the positions of their causes.
        reasons: of length n; the first of a cause counts.

    Returns:
        The events, and bool[n], the rows for which there are any.
    """
    why: dict[_Place, str] = {}
    places = _places(failed)
    for place, reason in zip(places, reasons, strict=True):
        why.setdefault(place, reason)
    orders = np.unique(failed.order)
    causes: list[_FailedInput] = []
    cause_places: set[_Place] = set()
    for stream, runs in inputs.items():
        for run in runs:
            some = np.flatnonzero(np.isin(run.order, orders))
            mine = _places(run.at(some))
            matches = [number for number, place in enumerate(mine) if place in why]
            if matches:
                texts = [why[mine[number]] for number in matches]
                causes.append(_FailedInput(stream, run.take(some[matches]), texts))
                cause_places.update(mine[number] for number in matches)
    return causes, np.array([place in cause_places for place in places], dtype=np.bool_)


def _places(events: EventBatch) -> list[_Place]:
    columns = (events.order, events.clock_ms, events.path)
    return list(zip(*(column.tolist() for column in columns), strict=True))
