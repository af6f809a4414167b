"""Samples of the cluster, once a second: rates of instances, and their history.

    samples ──▶ by the second: an hour ──▶ by the minute: a day ──▶ by ten minutes: a week
                                            │ the leader stores          │
                                            └────▶ MetricsHistoryStore ◀────────┘
                                                     │ a manager that starts reads it
                                                     ▼
                                            by the minute, by ten minutes

Every manager samples its own view, so each has the whole history, and none asks another.  An app
whose statistics are off has no history.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from nats.errors import Error as NatsError

from mesh.errors import MeshError
from mesh.jetstream.connection import UNREACHABLE
from mesh.jetstream.stream_positions import Surveyed, survey
from mesh.manager.history import SPAN_S, Key, MetricsHistory, Series, query_range
from mesh.manager.rates import FLOW_FIELDS, LATENCY_BUCKETS, Flow, Rates, total
from mesh.model.cluster import StatisticsLevel
from mesh.model.histogram import LATENCY_BOUNDS_S, quantile
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.control.snapshot import ClusterSnapshot
    from mesh.jetstream.history_store import MetricsHistoryStore
    from mesh.jetstream.watch import ClusterView
    from mesh.model.values import JsonObject
    from mesh.settings import ManagerSettings

log = logging.getLogger(__name__)

#: Interval of looks at streams and snapshots, seconds.
SURVEY_S: Final = 15.0
#: Part of the time in which the servers are asked: they list all streams in it.
_SURVEY_SHARE: Final = 0.02
#: Kinds of what events flow through; ``cluster`` is all apps, of the name ``all``.
_OF_FLOWS: Final = ("cluster", "app", "group", "instance")
#: Names of the values of a node.
NODE_FIELDS: Final = ("cpu", "process_cpu", "memory_bytes", "memory", "load_1m")
#: Latencies of events: half of them, and 99 of 100, had their effect published in that time.
LATENCIES: Final = {"latency_p50_s": 0.5, "latency_p99_s": 0.99}
#: Of each kind the names of the values that are answered.
FIELDS: Final[Mapping[str, Sequence[str]]] = {
    **dict.fromkeys(_OF_FLOWS, (*FLOW_FIELDS, *LATENCIES)),
    "node": NODE_FIELDS,
}
_BUCKETS: Final = tuple(f"latency_{number}" for number in range(LATENCY_BUCKETS))
#: Of each kind the names of the values that are kept: latencies by bucket, whose means over time
#: are those of all events in it.
STORED: Final[Mapping[str, Sequence[str]]] = {
    **dict.fromkeys(_OF_FLOWS, (*FLOW_FIELDS, *_BUCKETS)),
    "node": NODE_FIELDS,
}
#: Fields of which several apps have the greatest value and no sum.
_GREATEST: Final = ("backlog_s", "batch_s")
#: Length of a row and age of the oldest one of each history, seconds.
TIERS: Final = ((1, SPAN_S), (60, 86_400), (600, 7 * 86_400))
#: Series that are thinned before other work has its turn.
_AT_ONCE: Final = 100
#: Time after the end of a minute until it is thinned: all its samples are there, seconds.
_SETTLED_S: Final = 2
#: Values of one answer for each field.
STEPS_MAX: Final = 3600


@dataclass(frozen=True, slots=True)
class Past:
    """The history of an app, a group or a node."""

    #: ``app Shop``, ``group Shop/sums``, ``node worker/w1``.
    of: str
    #: Time of the first value, milliseconds since 1970.
    start_ms: int
    step_s: int
    #: By field: means over steps, None where nothing is known.
    values: Mapping[str, Sequence[float | None]]
    #: ``memory`` or ``prometheus``.
    source: str


@dataclass(frozen=True, slots=True)
class LastMinute:
    """Failed events and latencies of the last minute."""

    #: Per second.
    errors: float = 0.0
    #: Half of the events, and 99 of 100, had their effect published in that time, seconds.
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None


class Telemetry:
    """Rates and history of one manager's view."""

    def __init__(self, view: ClusterView, clock: Clock, settings: ManagerSettings) -> None:
        self._view = view
        self._clock = clock
        self._settings = settings
        self.rates = Rates()
        self.surveyed = Surveyed()
        # The last hour gets half of the memory, the others a quarter each.
        most = settings.history_bytes_max
        self.tiers = tuple(
            MetricsHistory(STORED, most // (2 if step_s == 1 else 4), step_s, span_s)
            for step_s, span_s in TIERS
        )

    async def run(self) -> None:
        """Sample once a second, without end."""
        while True:
            self.sample()
            now_s = self._clock.wall_ms() / 1000
            await asyncio.sleep(1.0 - now_s % 1.0 + 0.01)

    async def survey(self, client: Client, leads: Callable[[], bool]) -> None:
        """Look at streams and snapshots now and then, while this manager leads, without end."""
        pause_s = SURVEY_S
        while True:
            await asyncio.sleep(pause_s)
            if not leads():
                self.surveyed = Surveyed()
                continue
            apps = [seen.value for seen in self._view.snapshot().apps]
            began_s = self._clock.monotonic_s()
            try:
                self.surveyed = await survey(client, apps)
            # Metrics of a moment are missing then.
            except (TimeoutError, NatsError, OSError, KeyError, ValueError) as error:
                log.debug("streams not surveyed", extra=fields(error=error))
            took_s = self._clock.monotonic_s() - began_s
            pause_s = max(SURVEY_S, took_s / _SURVEY_SHARE)

    def sample(self) -> None:
        """Take the sample of this second."""
        snapshot = self._view.snapshot()
        self.rates.update(snapshot)
        self.tiers[0].add(self._clock.wall_ms() // 1000, samples(snapshot, self.rates))

    @property
    def bytes(self) -> int:
        """Memory of the history."""
        return sum(tier.bytes for tier in self.tiers)

    async def keep(self, store: MetricsHistoryStore, leads: Callable[[], bool]) -> None:
        """Thin the history by the minute and by ten minutes, and store it, without end.

        What managers stored before is read first.
        """
        begin_s = self._clock.wall_ms() // 1000
        ends = await self._load(store)
        done_s = {t.step_s: max(begin_s, ends.get(t.step_s, 0)) for t in self.tiers[1:]}
        done_s = {step_s: at_s - at_s % step_s for step_s, at_s in done_s.items()}
        while True:
            now_s = self._clock.wall_ms() / 1000
            await asyncio.sleep(60 - now_s % 60 + _SETTLED_S)
            end_s = self._clock.wall_ms() // 1000
            for finer, tier in pairwise(self.tiers):
                step_s = tier.step_s
                while done_s[step_s] + step_s <= end_s:
                    rows = await thinned(finer, done_s[step_s], step_s)
                    tier.add(done_s[step_s], rows)
                    if leads():
                        await self._store(store, tier, done_s[step_s], rows)
                    done_s[step_s] += step_s

    async def _load(self, store: MetricsHistoryStore) -> dict[int, int]:
        """Read what is stored; of each history by its step the end of what was read."""
        tiers = {tier.step_s: tier for tier in self.tiers[1:]}
        ends: dict[int, int] = {}
        try:
            async for step_s, at_s, rows in store.read():
                tier = tiers.get(step_s)
                if tier is None:
                    continue
                tier.add(at_s, {k: row for k, row in rows.items() if len(row) == len(STORED[k[0]])})
                ends[step_s] = max(ends.get(step_s, 0), at_s + step_s)
        # It begins with what this manager sees.
        except UNREACHABLE as error:
            log.warning("stored history not read", extra=fields(error=error))
        return ends

    async def _store(
        self,
        store: MetricsHistoryStore,
        tier: MetricsHistory,
        at_s: int,
        rows: Mapping[Key, Sequence[float]],
    ) -> None:
        try:
            await store.put(tier.step_s, tier.span_s, at_s, rows)
        # It is a gap for managers that start later.
        except UNREACHABLE as error:
            log.warning("history not stored", extra=fields(error=error))

    async def past(
        self, kind: str, name: str, seconds: int, step_s: int, until_s: int | None = None
    ) -> Past:
        """``seconds`` of an app, a group, an instance or a node in steps of ``step_s``, or longer.

        They end now, or at ``until_s``.  Beyond a week Prometheus is asked, if
        ``manager.prometheus_url`` names one.

        Raises:
            MeshError: MESH-A404 for something without a history; MESH-A422 for a longer time than
                is kept; MESH-A502 when Prometheus does not answer.
        """
        now_s = self._clock.wall_ms() // 1000
        until_s = now_s if until_s is None else min(until_s, now_s)
        since_s = until_s - seconds
        span_s = TIERS[-1][1]
        if now_s - since_s > span_s:
            step_s = max(step_s, -(-seconds // STEPS_MAX))
            if not self._settings.prometheus_url:
                raise MeshError(
                    "MESH-A422",
                    f"the history of a manager has {span_s} seconds, not {now_s - since_s}",
                    hint="manager.prometheus_url names a Prometheus that has more.",
                )
            values = await query_range(
                self._settings.prometheus_url, kind, name, since_s, until_s, step_s
            )
            return Past(f"{kind} {name}", since_s * 1000, step_s, values, "prometheus")
        series = self._read((kind, name), since_s, until_s, step_s, now_s)
        if series is None:
            raise MeshError(
                "MESH-A404",
                f'{kind} "{name}" has no history',
                hint="Names are Shop for an app, Shop/sums for a group, worker/w1 for a node.",
            )
        return _past(f"{kind} {name}", series)

    async def past_of_apps(
        self, apps: Sequence[str], seconds: int, step_s: int, until_s: int | None = None
    ) -> Past | None:
        """The history of several apps together, as ``past``; None without one."""
        now_s = self._clock.wall_ms() // 1000
        until_s = now_s if until_s is None else min(until_s, now_s)
        series = []
        for number, app in enumerate(apps):
            one = self._read(("app", app), until_s - seconds, until_s, step_s, now_s)
            if one is not None:
                series.append(one)
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        return _past("apps", summed(series)) if series else None

    def _read(self, key: Key, since_s: int, until_s: int, step_s: int, now_s: int) -> Series | None:
        """A series from the finest histories that have it, in steps of the coarsest one needed."""
        # A moment ago "an hour" was an hour.
        too_short = [tier for tier in self.tiers if now_s - since_s > tier.span_s + tier.step_s]
        used = self.tiers[: len(too_short) + 1]
        coarse_s = used[-1].step_s
        step_s = max(step_s, -(-(until_s - since_s) // STEPS_MAX))
        step_s = -(-step_s // coarse_s) * coarse_s
        series = [one for t in used if (one := t.read(key, since_s, until_s, step_s)) is not None]
        if not series:
            return None
        return Series(
            series[0].start_s,
            step_s,
            {
                field: [
                    next((value for value in step if value is not None), None)
                    for step in zip(*(one.values[field] for one in series), strict=True)
                ]
                for field in series[0].values
            },
        )

    def recent(self, kind: str, name: str) -> LastMinute:
        """The last minute of an app, a group or an instance."""
        until_s = self._clock.wall_ms() // 10_000 * 10
        series = self.tiers[0].read((kind, name), until_s - 60, until_s, 10)
        if series is None:
            return LastMinute()

        def mean(name: str) -> float:
            numbers = [value for value in series.values[name] if value is not None]
            return sum(numbers) / len(numbers) if numbers else 0.0

        counts = [mean(name) for name in _BUCKETS]
        p50_s, p99_s = (quantile(counts, LATENCY_BOUNDS_S, one) for one in LATENCIES.values())
        return LastMinute(mean("errors"), p50_s, p99_s)

    def figures(self) -> JsonObject:
        """The arguments of ``mesh.api.monitoring.ClusterValues`` besides apps and nodes."""
        now_s = self._clock.wall_ms() / 1000
        placed = [seen.value.instance for seen in self._view.snapshot().assignments]
        ages = self.surveyed.snapshots_s or {}
        return {
            "backlog_s": {name: self.rates.flow(name).backlog_s for name in placed},
            "moves": dict(self.rates.moves),
            "channels": [
                (one.app, one.js_stream, one.bytes, one.limit_ratio, one.replica_lag)
                for one in self.surveyed.channels
            ],
            "snapshot_ages_s": {at: max(0.0, now_s - at_s) for at, at_s in ages.items()},
        }

    def flows(self, instances: Mapping[str, Sequence[str]]) -> dict[str, Flow]:
        """The present flow of each of several things, given the names of their instances."""
        return {name: total(map(self.rates.flow, members)) for name, members in instances.items()}


def samples(snapshot: ClusterSnapshot, rates: Rates) -> dict[Key, Sequence[float]]:
    """The rows of one second: all apps together, apps, groups, instances and nodes.

    An instance that is alone in its group has the history of the group.  The row of a flow that has
    not changed is the one of before, which costs the history nothing.
    """
    off = {a.value.spec.name for a in snapshot.apps if a.value.statistics is StatisticsLevel.OFF}
    rows: dict[Key, Sequence[float]] = {}
    apps: defaultdict[str, list[Flow]] = defaultdict(list)
    for (app, group), instances in rates.groups.items():
        if app not in off:
            flows = [rates.flow(name) for name in instances]
            flow = total(flows)
            apps[app].append(flow)
            rows["group", f"{app}/{group}"] = flow.row
            if len(flows) > 1:
                for name, one in zip(instances, flows, strict=True):
                    rows["instance", name] = one.row
    wholes = {app: total(parts) for app, parts in apps.items()}
    rows |= {("app", app): flow.row for app, flow in wholes.items()}
    if wholes:
        rows["cluster", "all"] = total(wholes.values()).row
    for seen in snapshot.nodes:
        node, load = seen.value, seen.value.metrics
        rows["node", f"{node.role.value}/{node.id}"] = (
            load.cpu_percent / 100,
            load.process_cpu_percent / 100,
            float(load.memory_bytes),
            load.memory_percent / 100,
            load.load_1m,
        )
    return rows


async def thinned(finer: MetricsHistory, at_s: int, step_s: int) -> dict[Key, Sequence[float]]:
    """The means of all series over the ``step_s`` from ``at_s``; NaN where nothing is known."""
    rows: dict[Key, Sequence[float]] = {}
    for number, key in enumerate(finer.keys(), 1):
        one = finer.read(key, at_s, at_s + step_s, step_s)
        row = [values[0] for values in one.values.values()] if one is not None else []
        if any(value is not None for value in row):
            rows[key] = [math.nan if value is None else value for value in row]
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return rows


def summed(series: Sequence[Series]) -> Series:
    """One series for several of the same time: sums, and the greatest of ages and durations."""
    first = series[0]
    values: dict[str, list[float | None]] = {}
    for field in first.values:
        combine: Callable[[list[float]], float] = max if field in _GREATEST else sum
        values[field] = []
        for step in zip(*(one.values[field] for one in series), strict=True):
            numbers = [value for value in step if value is not None]
            values[field].append(combine(numbers) if numbers else None)
    return Series(first.start_s, first.step_s, values)


def _past(of: str, series: Series) -> Past:
    """An answer: percentiles take the place of the buckets."""
    values = {name: one for name, one in series.values.items() if name not in _BUCKETS}
    if _BUCKETS[0] in series.values:
        steps = list(zip(*(series.values[name] for name in _BUCKETS), strict=True))
        for name, share in LATENCIES.items():
            values[name] = [_quantile(step, share) for step in steps]
    return Past(of, series.start_s * 1000, series.step_s, values, "memory")


def _quantile(step: Sequence[float | None], share: float) -> float | None:
    counts = [value or 0.0 for value in step]
    latency_s = quantile(counts, LATENCY_BOUNDS_S, share)
    return None if latency_s is None else round(latency_s, 6)
