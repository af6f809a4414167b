"""A query as a node: what comes to it by channels, where its output and its errors go."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.functions.objects import Opaque, to_binary
from mesh.operators.base import CURRENT, WHOLE
from mesh.operators.graph import Calls, Made, entering
from mesh.operators.queries import start

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.operators.base import Events, Longs, State, Timeline
    from mesh.operators.tables import TableAction
    from mesh.plan.bound import BoundQuery

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failed:
    """Events of a stream on which a query failed, n of them, each with the reason."""

    query: str
    stream: str
    time_ms: Longs
    rows: pa.RecordBatch
    reasons: list[str]


@dataclass(slots=True)
class Errors:
    """What failed in the queries of one app, until somebody takes it.

    ``faults``: the schema of the fault stream, by stream that has one.
    """

    faults: Mapping[str, pa.Schema]
    found: list[Failed] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a query's output goes.

    ``channel``: empty for tables, where ``table`` takes it.  ``leaves``: whether that is out of a
    partition.
    """

    channel: str
    leaves: bool = False
    table: TableAction | None = None


class QueryWork:
    """A query between channels; ``channels``: by channel, the name by which the query knows it."""

    def __init__(
        self,
        query: BoundQuery,
        timer: int,
        channels: Mapping[str, str],
        target: Target,
        errors: Errors,
    ) -> None:
        self._name = query.name
        self._channels = channels
        self._target = target
        self._errors = errors
        #: Attributes are named by the target, which may be defined with other names.
        self._schema = query.target.arrow
        # A channel inside of a partition has the partition's name before it.
        self.query = start(query, timer, is_partitioned=any("|" in name for name in channels))
        self.calls = Calls(query.name)

    def process(self, inputs: Mapping[str, Sequence[Events]], timeline: Timeline) -> Made:
        """What the query makes of the events, for its target, and of those on which it failed."""
        named: dict[str, list[Events]] = {}
        for channel, runs in inputs.items():
            named.setdefault(self._channels[channel], []).extend(runs)
        made = self.query.process(named, timeline)
        self.calls.record(made)
        result: Made = []
        if self._target.table is not None:
            refused = self._target.table.perform(made)
            if refused:
                log.error("table refused rows", extra={"query": self._name, "rows": len(refused)})
        else:
            made = entering(made)
            if self._target.leaves:
                made = replace(made, instance=np.full(len(made), WHOLE, dtype=np.int64))
            result.append((self._target.channel, made))
        if self.query.failures.found:
            result += self._failed()
        return result

    def _failed(self) -> Made:
        """Events for the fault stream, where the stream has one; the others are kept to be told."""
        made: Made = []
        stream = next(iter(self._channels.values()))
        schema = self._errors.faults.get(stream)
        for events, reasons in self.query.failures.found:
            for reason in reasons[:1]:
                log.error("query failed on an event", extra={"query": self._name, "why": reason})
            is_own = len(set(self._channels.values())) == 1
            names = schema.names[:-1] if schema is not None else []
            # The engine only logs what fails when a timer fires.
            came = np.flatnonzero(events.kind == CURRENT)
            if schema is None or not is_own or not set(names) <= set(events.rows.schema.names):
                self._errors.found.append(
                    Failed(self._name, stream, events.time_ms, events.rows, reasons)
                )
                continue
            events = events.take(came)
            values = to_binary([Opaque("java.lang.RuntimeException", reasons[i]) for i in came])
            columns = [events.rows.column(name) for name in names]
            rows = pa.RecordBatch.from_arrays([*columns, values], schema=schema)
            events = replace(events, instance=np.full(len(events), WHOLE, dtype=np.int64))
            made.append((f"!{stream}", events.with_rows(rows)))
        self.query.failures.found.clear()
        return made

    def next_time(self) -> int | None:
        """When the query's next timer is due."""
        return self.query.next_time()

    def forget(self, instances: Longs) -> None:
        """Drop these instances of the query's partition."""
        self.query.forget(instances)

    def snapshot(self) -> State:
        """The query's state."""
        return self.query.snapshot()

    def restore(self, state: State) -> None:
        """Take over the query's state."""
        self.query.restore(state)
