"""Samples of the cluster, once a second: rates of instances, and their history.

Every manager samples its own view, so each has the whole history, and none asks another.  An app
whose statistics are off has no history.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from nats.errors import Error as NatsError

from mesh.errors import MeshError
from mesh.jetstream.survey import Surveyed, survey
from mesh.logs import fields
from mesh.manager.history import KEPT_S, History, Key
from mesh.manager.prometheus import query_range
from mesh.manager.rates import Flow, Rates, total
from mesh.model.cluster import StatisticsLevel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.control.snapshot import ClusterSnapshot
    from mesh.jetstream.watch import ClusterView
    from mesh.settings import ManagerSettings

log = logging.getLogger(__name__)

#: Interval of looks at streams and snapshots, seconds.
SURVEY_S: Final = 15.0
#: Names of the values of an app and a group, and of a node.
FLOW_FIELDS: Final = ("events_in", "events_out", "errors", "backlog", "backlog_s", "batch_s")
NODE_FIELDS: Final = ("cpu", "process_cpu", "memory_bytes", "memory", "load_1m")
FIELDS: Final[Mapping[str, Sequence[str]]] = {
    "app": FLOW_FIELDS,
    "group": FLOW_FIELDS,
    "node": NODE_FIELDS,
}
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


class Telemetry:
    """Rates and history of one manager's view."""

    def __init__(self, view: ClusterView, clock: Clock, settings: ManagerSettings) -> None:
        self._view = view
        self._clock = clock
        self._settings = settings
        self.rates = Rates()
        self.surveyed = Surveyed()
        self.history = History(FIELDS, settings.history_bytes_max)

    async def run(self) -> None:
        """Sample once a second, without end."""
        while True:
            self.sample()
            now_s = self._clock.wall_ms() / 1000
            await asyncio.sleep(1.0 - now_s % 1.0 + 0.01)

    async def survey(self, client: Client, leads: Callable[[], bool]) -> None:
        """Look at streams and snapshots now and then, while this manager leads, without end."""
        while True:
            await asyncio.sleep(SURVEY_S)
            if not leads():
                self.surveyed = Surveyed()
                continue
            apps = [seen.value for seen in self._view.snapshot().apps]
            try:
                self.surveyed = await survey(client, apps)
            # Metrics of a moment are missing then.
            except (TimeoutError, NatsError, OSError, KeyError, ValueError) as error:
                log.debug("streams not surveyed", extra=fields(error=error))

    def sample(self) -> None:
        """Take the sample of this second."""
        snapshot = self._view.snapshot()
        self.rates.update(snapshot)
        self.history.add(self._clock.wall_ms() // 1000, samples(snapshot, self.rates))

    async def past(self, kind: str, name: str, seconds: int, step_s: int) -> Past:
        """The last ``seconds`` of an app, a group or a node in steps of ``step_s``.

        Beyond an hour Prometheus is asked, if ``manager.prometheus_url`` names one.

        Raises:
            MeshError: MESH-A404 for something without a history; MESH-A422 for a longer time than
                is kept; MESH-A502 when Prometheus does not answer.
        """
        now_s = self._clock.wall_ms() // 1000
        step_s = max(step_s, -(-seconds // STEPS_MAX))
        if seconds > KEPT_S:
            if not self._settings.prometheus_url:
                raise MeshError(
                    "MESH-A422",
                    f"the history of a manager has {KEPT_S} seconds, not {seconds}",
                    hint="manager.prometheus_url names a Prometheus that has more.",
                )
            since_s = now_s - seconds
            values = await query_range(
                self._settings.prometheus_url, kind, name, since_s, now_s, step_s
            )
            return Past(f"{kind} {name}", since_s * 1000, step_s, values, "prometheus")
        found = self.history.read((kind, name), now_s - seconds, now_s, step_s)
        if found is None:
            raise MeshError(
                "MESH-A404",
                f'{kind} "{name}" has no history',
                hint="Names are Shop for an app, Shop/sums for a group, worker/w1 for a node.",
            )
        return Past(f"{kind} {name}", found.start_s * 1000, step_s, found.values, "memory")

    def figures(self) -> dict[str, Any]:
        """The arguments of ``mesh.api.metrics.ClusterValues`` besides apps and nodes."""
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
    """The rows of one second: apps, groups and nodes."""
    groups: defaultdict[tuple[str, str], list[Flow]] = defaultdict(list)
    for placed in snapshot.assignments:
        one = placed.value
        groups[one.app, one.group].append(rates.flow(one.instance))
    off = {a.value.spec.name for a in snapshot.apps if a.value.statistics is StatisticsLevel.OFF}
    found: dict[Key, Sequence[float]] = {}
    apps: defaultdict[str, list[Flow]] = defaultdict(list)
    for (app, group), flows in groups.items():
        if app not in off:
            flow = total(flows)
            apps[app].append(flow)
            found["group", f"{app}/{group}"] = _row(flow)
    for app, flows in apps.items():
        found["app", app] = _row(total(flows))
    for seen in snapshot.nodes:
        node, load = seen.value, seen.value.metrics
        found["node", f"{node.role.value}/{node.id}"] = (
            load.cpu_percent / 100,
            load.process_cpu_percent / 100,
            float(load.memory_bytes),
            load.memory_percent / 100,
            load.load_1m,
        )
    return found


_row: Final[Callable[[Flow], Sequence[float]]] = attrgetter(*FLOW_FIELDS)
