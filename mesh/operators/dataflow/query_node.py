"""A query as a node: what comes to it by channels, where its output and its errors go."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mesh.operators.base import CURRENT, RESET, WHOLE
from mesh.operators.dataflow.causes import failed_inputs
from mesh.operators.dataflow.graph import CallbackRecorder, Outputs, as_current
from mesh.operators.failures import FAILED, failure_events, faulted
from mesh.plan.bound import BoundStream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from mesh.operators.base import Events, Longs, State, Timeline
    from mesh.operators.query.handlers import RunningQuery
    from mesh.operators.tables import TableAction
    from mesh.plan.bound import BoundQuery

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OutputTarget:
    """Where a query's output goes.

    ``channel``: empty for tables, where ``table`` takes it.  ``leaves``: whether that is out of a
    partition.
    """

    channel: str
    leaves: bool = False
    table: TableAction | None = None


class QueryNode:
    """A query between channels; ``channels``: by channel, the name by which the query knows it.

    ``faults``: by stream whose failed events somebody takes, the schema of its fault stream.
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
        #: Attributes are named by the target, which may be defined with other names.
        self._schema = query.target.arrow
        self._streams = tuple(dict.fromkeys(channels.values()))
        #: Whether it selects from what several events make together.
        self._is_joint = not isinstance(query.input, BoundStream)
        self.query = running
        self.calls = CallbackRecorder(query.name)

    def process(self, inputs: Mapping[str, Sequence[Events]], timeline: Timeline) -> Outputs:
        """What the query makes of the events, for its target, and of those on which it failed."""
        named: dict[str, list[Events]] = {}
        for channel, runs in inputs.items():
            named.setdefault(self._channels[channel], []).extend(runs)
        made = self.query.process(named, timeline)
        self.calls.record(made)
        result: Outputs = []
        if self._target.table is not None:
            result += self._kept(self._target.table, made, named)
        else:
            made = as_current(made)
            if self._target.leaves:
                made = replace(made, instance=np.full(len(made), WHOLE, dtype=np.int64))
            result.append((self._target.channel, made))
        if self.query.failures.found:
            result += self._failed(named)
        return result

    def _kept(
        self, table: TableAction, made: Events, named: Mapping[str, Sequence[Events]]
    ) -> Outputs:
        """Have the table take the output; what it refuses is told, as it is lost."""
        if made.kind.any():
            made = made.where(made.kind != RESET)
        outcome = table.perform(made)
        result: Outputs = []
        streams = ", ".join(self._streams)
        for reasons, is_failed in ((outcome.refused, False), (outcome.failed, True)):
            if not reasons:
                continue
            rows = sorted(reasons)
            log.error("table refused rows", extra={"query": self._name, "rows": len(rows)})
            lost = replace(made.take(np.array(rows)), instance=np.full(len(rows), WHOLE))
            why = [reasons[row] for row in rows]
            if is_failed:
                result += self._to_causes(named, lost, why)
            else:
                result.append((FAILED, failure_events(self._name, streams, lost, why)))
        return result

    def _to_causes(
        self, named: Mapping[str, Sequence[Events]], failed: Events, reasons: list[str]
    ) -> Outputs:
        """What failed on its way out: the events that set it off, where their stream has faults."""
        asked = {stream: runs for stream, runs in named.items() if stream in self._faults}
        found, has_cause = failed_inputs(asked, failed, reasons)
        made: Outputs = []
        for one in found:
            whole = np.full(len(one.events), WHOLE, dtype=np.int64)
            events = replace(one.events, instance=whole)
            schema = self._faults[one.stream]
            made.append((f"!{one.stream}", faulted(schema, events, one.reasons)))
        # What leaves a window has come before; the engine only logs what fails then.
        rest = np.flatnonzero(~has_cause & (failed.kind == CURRENT))
        if len(rest):
            events = replace(failed.take(rest), instance=np.full(len(rest), WHOLE, dtype=np.int64))
            why = [reasons[row] for row in rest]
            made.append((FAILED, failure_events(self._name, ", ".join(self._streams), events, why)))
        return made

    def _failed(self, named: Mapping[str, Sequence[Events]]) -> Outputs:
        """Events for the fault stream, where the stream has one; the others are told."""
        made: Outputs = []
        for events, reasons, known in self.query.failures.found:
            for reason in reasons[:1]:
                log.error("query failed on an event", extra={"query": self._name, "why": reason})
            if known is None and self._is_joint:
                made += self._to_causes(named, events, reasons)
                continue
            stream = ", ".join(self._streams) if known is None else known
            schema = self._faults.get(stream)
            names = schema.names[:-1] if schema is not None else []
            # What leaves a window has come before; the engine only logs what fails then.
            came = np.flatnonzero(events.kind == CURRENT)
            whole = np.full(len(came), WHOLE, dtype=np.int64)
            events = replace(events.take(came), instance=whole)
            reasons = [reasons[row] for row in came]
            if not len(events):
                continue
            if schema is None or not set(names) <= set(events.rows.schema.names):
                made.append((FAILED, failure_events(self._name, stream, events, reasons)))
                continue
            made.append((f"!{stream}", faulted(schema, events, reasons)))
        self.query.failures.found.clear()
        return made

    def next_time(self) -> int | None:
        """When the query's next timer is due."""
        return self.query.next_time()

    def begin(self, instances: Longs, clocks_ms: Longs) -> None:
        """There are these instances of the query's partition, from these times on."""
        self.query.begin(instances, clocks_ms)

    def forget(self, instances: Longs) -> None:
        """Drop these instances of the query's partition."""
        self.query.forget(instances)

    def snapshot(self) -> State:
        """The query's state."""
        return self.query.snapshot()

    def restore(self, state: State) -> None:
        """Take over the query's state."""
        self.query.restore(state)
