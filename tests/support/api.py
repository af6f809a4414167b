"""The REST API over a small service in memory.

It is longer than others: one double for all routes, so that they are tested against one state.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import anyio

from mesh.api.server import ApiServer, listen
from mesh.errors import MeshError, MeshErrors, Position
from mesh.manager.nodes import Leadership
from mesh.manager.overview import Overview, overview
from mesh.manager.planning import view_of
from mesh.manager.rates import Flow
from mesh.manager.telemetry import Past
from mesh.model.app import AppSpec, Channel
from mesh.model.backup import BackupRecord, RestoreResult
from mesh.model.cluster import Forked, Promoted
from mesh.model.history import Backfilled
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.settings import ManagerSettings
from tests.support.api_checks import FakeChecks
from tests.support.api_feeds import FakeFeeds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from mesh.manager.service import ManagerService
    from mesh.model.begin import StartPosition
    from mesh.model.cluster import StatisticsLevel
    from mesh.model.error_entry import SimulatedEvent
    from mesh.model.history import HistoryInput

TEXT = "@App:name('Shop') define stream Orders (item string, count int);"
TEXT_PLAIN = {"Content-Type": "text/plain"}


@dataclass(frozen=True, slots=True)
class Done:
    app: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class FakeNode:
    id: str
    role: str


@dataclass
class FakeEvents:
    """Five failed events of one app, and a record of the requests."""

    ids: list[int] = field(default_factory=lambda: [1, 2, 3, 4, 5])
    done: list[tuple[Any, ...]] = field(default_factory=list)

    async def failed_count(self, app: str) -> int:
        return len(self.ids)

    async def failed(self, app: str, limit: int, before: int | None = None) -> list[dict[str, int]]:
        if app == "broken":
            raise RuntimeError("a fault of ours")
        return [{"id": id_} for id_ in self.ids if before is None or id_ < before][-limit:]

    async def failed_one(self, app: str, id_: int) -> dict[str, int]:
        if id_ not in self.ids:
            raise MeshError("MESH-A404", f"no failed event {id_}")
        return {"id": id_}

    async def replay(
        self,
        app: str,
        ids: Sequence[int] | None,
        data: bytes | None,
        *,
        by: str,
        to_stream: bool = False,
    ) -> dict[str, Any]:
        self.done.append(("replay", app, ids, data, *(["stream"] if to_stream else [])))
        return {"ids": ids}

    async def discard(self, app: str, ids: Sequence[int] | None, *, by: str) -> dict[str, Any]:
        self.done.append(("discard", app, ids))
        return {"ids": ids}

    async def discard_older(self, app: str, age_s: float, *, by: str) -> int:
        self.done.append(("older", app, age_s))
        return 2

    async def send(self, app: str, events: Sequence[SimulatedEvent]) -> int:
        self.done.append(("send", app, *events))
        return len(events)


@dataclass
class FakeTracer:
    """A record of spans."""

    spans: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def span(
        self, name: str, parent: Mapping[str, str], **attributes: Any
    ) -> AbstractContextManager[None]:
        self.spans.append((name, parent.get("traceparent", ""), attributes))
        return nullcontext()


class FakeTelemetry:
    """The history of one app."""

    bytes = 4096

    async def past(self, kind: str, name: str, seconds: int, step_s: int) -> Past:
        if name != "Shop":
            raise MeshError("MESH-A404", f'{kind} "{name}" has no history')
        return Past(f"{kind} {name}", 0, step_s, {"events_in": [None, 2.5]}, "memory")


@dataclass
class FakeBackups:
    """Backups of one app."""

    kept: list[BackupRecord] = field(default_factory=list)
    asked: dict[str, Any] = field(default_factory=dict)

    async def make(self, app: str, *, by: str) -> BackupRecord:
        if app != "Shop":
            raise MeshError("MESH-A404", f'app "{app}" is not deployed')
        made = BackupRecord(app, f"r{len(self.kept) + 1}", 0, by, 2, 3000)
        self.kept.append(made)
        return made

    async def list_all(self, app: str) -> list[BackupRecord]:
        return self.kept

    async def delete(self, app: str, revision: str | None, *, by: str) -> int:
        gone = [one for one in self.kept if revision in (None, one.revision)]
        self.kept = [one for one in self.kept if one not in gone]
        return len(gone)

    async def restore(self, app: str, **asked: Any) -> RestoreResult:
        self.asked = asked
        if asked["revision"] == "lost":
            raise MeshError("MESH-A410", "what has come since is not there any more")
        return RestoreResult(
            asked["other"] or app, asked["revision"] or "r1", asked["replay"], 7, 2
        )


@dataclass
class FakeForks:
    """Forks of one app."""

    asked: dict[str, Any] = field(default_factory=dict)

    async def fork(self, app: str, other: str, **asked: Any) -> Forked:
        if app != "Shop":
            raise MeshError("MESH-A404", f'app "{app}" is not deployed')
        self.asked = asked
        return Forked(other, app, "", {}, {}, 0, ())


@dataclass
class FakeBackfills:
    """Deploys with history."""

    asked: list[HistoryInput] = field(default_factory=list)

    async def backfill(self, text: str, inputs: Sequence[HistoryInput], *, by: str) -> Backfilled:
        self.asked = list(inputs)
        return Backfilled("Shop", tuple(one.stream for one in inputs), 7, 0, 3, 0, 0.5)


class FakePromotions:
    """Promotions of one fork."""

    def app_of(self, fork: str) -> str:
        if fork == "Gone":
            raise MeshError("MESH-A404", f'app "{fork}" is not deployed')
        return "Shop"

    async def promote(self, fork: str, *, replaces: str | None, by: str) -> Promoted:
        if replaces not in (None, "Shop"):
            raise MeshError("MESH-C154", f'"{fork}" can\'t be promoted')
        return Promoted("Shop", fork, None)


class FakePast:
    """Lineage of one event."""

    async def why(self, app: str, stream: str, sequence: int, index: int) -> Any:
        if sequence > 9:
            raise MeshError("MESH-A404", f"no event {index} in message {sequence}")
        return {"stream": stream, "sequence": sequence, "index": index, "inputs": []}

    async def compare(
        self,
        app: str,
        other: str,
        streams: Sequence[str],
        key: Sequence[str],
        ignored: Sequence[str] = (),
    ) -> Any:
        asked = {"streams": list(streams), "key": list(key), "ignored": list(ignored)}
        return {"app": app, "fork": other, **asked}


@dataclass(frozen=True, slots=True)
class FakeAnswer:
    asked: tuple[Any, ...]

    def to_values(self, *, details: bool) -> dict[str, Any]:
        values: dict[str, Any] = {"records": [list(self.asked)], "positions": {}}
        if details:
            values["details"] = [{"name": f"c{n}", "dataType": "OBJECT"} for n in range(4)]
        return values


class FakeQueries:
    """Answers with the request; a table ``Away`` can't answer."""

    async def ask(
        self, app: str, query: str, *, at_least: Mapping[str, int], partial: bool,
        may_change: bool, id_: str,
    ) -> FakeAnswer:  # fmt: skip
        if query.startswith("delete"):
            return FakeAnswer((may_change, id_))
        if "Away" in query:
            raise MeshError("MESH-A503", "Shop-default-1 can't answer now")
        return FakeAnswer((app, query, dict(at_least), partial))

    async def check_aggregation(self, app: str, aggregation: str) -> None:
        if aggregation != "Sales":
            raise MeshError("MESH-A404", f'aggregation "{aggregation}" is not defined')


class FakeWhatIfs:
    async def what_if(self, text: str, at_rate: Sequence[str], keys: int, cores: int) -> Any:
        if text.splitlines()[-1].startswith("!"):
            raise MeshError("MESH-C170", 'app "Shop" can\'t be calibrated')
        return {"rates": list(at_rate), "keys": keys, "cores": cores}


class FakePreviews:
    """Answers with the request."""

    async def preview(
        self, text: str, *, events: str = "", streams: Sequence[str] = (), last: int = 1000,
        since: str = "", until: str = "", against: str = "", keep: bool = False,
    ) -> Any:  # fmt: skip
        if text.splitlines()[-1].startswith("!"):
            raise MeshError("MESH-C172", "the preview exceeds its limits")
        return {
            "text": text, "events": events, "from": list(streams), "last": last, "since": since,
            "until": until, "against": against, "keep": keep,
        }  # fmt: skip


@dataclass
class FakeService:
    """Apps in a dict; a text whose last line starts with '!' is refused at a position."""

    texts: dict[str, str] = field(default_factory=dict)
    by: list[str] = field(default_factory=list)
    runs: anyio.Event = field(default_factory=anyio.Event)
    waited_s: float | None = None
    events: FakeEvents = field(default_factory=FakeEvents)
    begins: list[str] = field(default_factory=list)
    backups: FakeBackups = field(default_factory=FakeBackups)
    feeds: FakeFeeds = field(default_factory=FakeFeeds)
    reasons: tuple[str, ...] = ()
    paused: set[str] = field(default_factory=set)
    levels: dict[str, str] = field(default_factory=dict)
    tracer: FakeTracer = field(default_factory=FakeTracer)
    telemetry: FakeTelemetry = field(default_factory=FakeTelemetry)
    queries: FakeQueries = field(default_factory=FakeQueries)
    forks: FakeForks = field(default_factory=FakeForks)
    what_ifs: FakeWhatIfs = field(default_factory=FakeWhatIfs)
    previews: FakePreviews = field(default_factory=FakePreviews)
    backfills: FakeBackfills = field(default_factory=FakeBackfills)
    promotions: FakePromotions = field(default_factory=FakePromotions)
    past: FakePast = field(default_factory=FakePast)

    @property
    def as_manager(self) -> ManagerService:
        """This service for the API; ``tests/api/test_doubles.py`` compares the calls."""
        return cast("ManagerService", self)

    async def deploy(self, text: str, *, by: str, begin: StartPosition) -> Done:
        self.begins.append(str(begin))
        if text.splitlines()[-1].startswith("!"):
            raise MeshError("MESH-L100", "no app", hint="Write one.", position=Position(1, 1, 1))
        known = self.texts.get("Shop")
        if known is not None and known != text:
            raise MeshError("MESH-A409", 'app "Shop" exists with another text')
        self.texts["Shop"] = text
        self.by.append(by)
        return Done("Shop", known is None)

    async def update(
        self, text: str, *, by: str, replace: bool, reset: Sequence[str] = (), begin: StartPosition
    ) -> Done:
        self.begins.append(str(begin))
        is_new = "Shop" not in self.texts
        if not is_new and self.texts["Shop"] != text and not replace:
            raise MeshError("MESH-A409", 'app "Shop" is deployed already, with another plan')
        self.texts["Shop"] = text
        self.by.append(by)
        return Done("Shop", is_new)

    async def leadership(self) -> Leadership:
        return Leadership("m1", "m1")

    async def undeploy(self, app: str, *, by: str = "") -> None:
        self._text(app)
        del self.texts[app]

    async def apps(self) -> list[Done]:
        return [Done(name, False) for name in self.texts]

    async def overview(self) -> Overview:
        return overview((), (), "m1")

    async def flows(self) -> dict[str, Flow]:
        return {name: Flow(events_in=2.5) for name in self.texts}

    def now_ms(self) -> int:
        return 1_000_000

    async def cluster_figures(self) -> dict[str, Any]:
        return {
            "backlog_s": {"Shop-sums-1": 1.5},
            "moves": {"Shop": 3},
            "channels": [("Shop", "mesh-Shop-Orders", 1000, 0.5, 2)],
            "snapshot_ages_s": {("Shop", "sums"): 4.0},
            "targets": {("Shop", "sums"): 3},
            "findings": {("Shop", "fault", "input-lost"): 2},
        }

    @property
    def verification(self) -> FakeChecks:
        return FakeChecks(self._text)

    @property
    def guarantees(self) -> FakeChecks:
        return FakeChecks(self._text)

    async def name_of(self, text: str) -> str:
        return text.partition("@App:name('")[2].partition("'")[0]

    async def app(self, app: str) -> AppSpec:
        schema = StreamSchema("Orders", (Attribute("item", AttributeType.STRING),))
        return AppSpec(app, self._text(app), (Channel(app, schema),), ())

    async def plan_view(self, app: str, form: str) -> Any:
        return view_of(await self.app(app), form)

    async def status(self, app: str) -> dict[str, str]:
        self._text(app)
        state = "paused" if app in self.paused else "running" if self.runs.is_set() else "waiting"
        return {"app": app, "state": state}

    async def wait_running(self, app: str, timeout_s: float) -> dict[str, str]:
        self.waited_s = timeout_s
        with anyio.move_on_after(timeout_s):
            await self.runs.wait()
        return await self.status(app)

    def is_live(self) -> bool:
        return True

    def unready_reasons(self) -> tuple[str, ...]:
        return self.reasons

    async def nodes(self) -> list[FakeNode]:
        return [FakeNode("m1", "manager"), FakeNode("w1", "worker")]

    async def story(self, app: str) -> list[dict[str, str]]:
        self._text(app)
        return [{"text": f"deployed app {app}"}]

    async def preview(self, text: str, *, reset: Sequence[str]) -> dict[str, Any]:
        if text.splitlines()[-1].startswith("!"):
            raise MeshErrors([MeshError("MESH-L100", "no app"), MeshError("MESH-L101", "nor one")])
        return {"app": "Shop", "is_new": "Shop" not in self.texts, "reset": list(reset)}

    async def check(self, text: str) -> list[dict[str, Any]]:
        found = {"number": 0, "stream": "S", "name": "source http", "endpoint": "http://h/",
                 "sample": [{"n": 1}], "refused": [], "worker": "w1"}  # fmt: skip
        return [{**found, "problem": "" if "good" in text else "can't be opened"}]

    async def pause(self, app: str, *, by: str) -> dict[str, str]:
        self._text(app)
        self.paused.add(app)
        return await self.status(app)

    async def resume(self, app: str, *, by: str) -> dict[str, str]:
        self.paused.discard(app)
        return await self.status(app)

    async def set_statistics(self, app: str, level: StatisticsLevel, *, by: str) -> None:
        await self.status(app)
        self.levels[app] = level

    async def scale(self, app: str, group: str, parallel: int, *, by: str) -> dict[str, str]:
        self._text(app)
        if parallel > 8:
            raise MeshError("MESH-A422", f'group "{group}" can\'t have {parallel} instances')
        return {"app": app, "state": "rescaling", "asked": f"{group} {parallel}"}

    async def order_node(self, node: str, admission: str, *, by: str) -> FakeNode:
        if node != "w1":
            raise MeshError("MESH-A404", f'worker "{node}" is not there')
        self.by.append(by)
        return FakeNode(node, admission)

    def _text(self, app: str) -> str:
        if app not in self.texts:
            raise MeshError("MESH-A404", f'app "{app}" is not deployed')
        return self.texts[app]


@asynccontextmanager
async def served(service: FakeService, settings: ManagerSettings) -> AsyncIterator[ApiServer]:
    """The API on a free port."""
    api = ApiServer(service.as_manager, settings, listen(settings))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(api.run)
        try:
            yield api
        finally:
            api.stop()


OPEN = ManagerSettings(port=0, anonymous=True)
