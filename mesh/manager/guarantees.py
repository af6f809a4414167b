"""Audit of an app's guarantees on this cluster: facts of NATS and settings, for the pure audit."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.jetstream.blob_store import JETSTREAM
from mesh.jetstream.connection import api_call, refusals
from mesh.model import names
from mesh.model.values import JsonObject
from mesh.plan.guarantees import AuditRow, Facts, StreamFacts, audit, refusal, summary

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nats.aio.client import Client

    from mesh.manager.desired_state import DesiredState
    from mesh.manager.planning import Planner
    from mesh.model.app import AppSpec
    from mesh.settings import Settings

#: Calls at once.
_CALLS: Final = 8
#: Age of what an answer to a deploy says of the mesh's own records, seconds.
_CACHE_AGE_S: Final = 5.0
#: Time in which a worker gets a session and opens the states of what it takes over, seconds.
_START_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Guarantees:
    """The audit of one app."""

    app: str
    #: Servers that hold its streams and the records of the mesh, as far as they are made.
    servers: tuple[str, ...]
    #: ``channels.replicas``.
    replicas: int
    #: ``sync_interval`` of the servers, 0 for always; None if it is unknown.
    sync_interval_s: float | None
    rows: tuple[AuditRow, ...]
    #: A line of what holds, then one for each thing that does not.
    summary: tuple[str, ...]


@dataclass(eq=False, repr=False)
class GuaranteeAudit:
    """The audits of one manager."""

    _client: Client
    _desired: DesiredState
    _planner: Planner
    _settings: Settings
    _gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_CALLS))
    #: The last answers about the mesh's own records, and their time.
    _cache: dict[str, JsonObject] = field(default_factory=dict)
    _cached_at_s: float = -math.inf

    async def of_app(self, app: str) -> Guarantees:
        """The audit of a deployed app; MESH-A404, MESH-A503 when NATS does not answer."""
        return await self.of(self._desired.spec(app))

    async def of(
        self, spec: AppSpec, *, as_new: bool = False, max_age_s: float = 0.0
    ) -> Guarantees:
        """The audit of a plan.

        Args:
            spec: the plan.
            as_new: whether its own streams are made again.
            max_age_s: greatest age of what is said of the mesh's own records, seconds.

        Raises:
            MeshError: MESH-A503 when NATS does not answer.
        """
        channels = {c.id: c for c in spec.channels}
        channels |= {i.channel.id: i.channel for g in spec.groups for i in g.inputs}
        used_streams = {
            name: not channel.foreign and spec.creates_channels and as_new
            for channel in channels.values()
            for name in channel.js_streams
        }
        mesh_streams = [f"KV_{one}" for one in (names.APPS_BUCKET, names.CONTROL_BUCKET)]
        mesh_streams.append(f"KV_{names.SNAPSHOTS_BUCKET}")
        store = self._settings.state.store
        if store == JETSTREAM:
            mesh_streams.append(f"OBJ_{names.STATE_BUCKET}")
        with refusals():
            existing = [name for name, is_new in used_streams.items() if not is_new]
            infos = await self._infos(existing) | await self._cached_infos(mesh_streams, max_age_s)
        streams = {name: self._facts_of(name, infos.get(name)) for name in used_streams}
        stated_s = self._settings.channels.sync_interval_s
        timing = self._settings.worker, self._settings.manager
        facts = Facts(
            streams,
            tuple(self._facts_of(name, infos.get(name)) for name in mesh_streams),
            self._settings.channels.replicas,
            self._settings.channels.keep_unread,
            None if stated_s < 0 else stated_s,
            timing[0].ttl_s + timing[0].margin_s + timing[1].lease_ttl_s + _START_S,
            "" if store == JETSTREAM else store,
        )
        rows = tuple(audit(spec, facts))
        servers = sorted({one for info in infos.values() for one in _servers_of(info)})
        return Guarantees(
            spec.name, tuple(servers), facts.replicas, facts.sync_s, rows, tuple(summary(rows))
        )

    async def preview(
        self, spec: AppSpec, *, as_new: bool = False
    ) -> tuple[Guarantees, MeshError | None]:
        """The audit of a plan, and the error with which its deploy is refused; MESH-A503."""
        guarantees = await self.of(spec, as_new=as_new)
        demanded = await self._planner.demanded(spec)
        return guarantees, refusal(spec.name, guarantees.rows, demanded, guarantees.replicas)

    async def check(self, spec: AppSpec, *, as_new: bool = False) -> None:
        """Refuse an app that demands more than holds: MESH-C125."""
        if await self._planner.demanded(spec) is None:
            return
        _, error = await self.preview(spec, as_new=as_new)
        if error is not None:
            raise error

    async def summary(self, spec: AppSpec) -> tuple[str, ...]:
        """The short one for the answer to a deploy, which is done whether NATS answers or not."""
        try:
            guarantees = await self.of(spec, max_age_s=_CACHE_AGE_S)
            return tuple(summary(guarantees.rows, is_short=True))
        except MeshError:
            return ("guarantees are not known: NATS does not answer",)

    async def _infos(self, streams: Iterable[str]) -> dict[str, JsonObject]:
        """The answers of the server about streams, without those that are not there."""

        async def ask(name: str) -> tuple[str, JsonObject]:
            async with self._gate:
                return name, await api_call(self._client, f"STREAM.INFO.{name}")

        responses = await asyncio.gather(*map(ask, streams))
        return {name: info for name, info in responses if "config" in info}

    async def _cached_infos(
        self, streams: Iterable[str], max_age_s: float
    ) -> dict[str, JsonObject]:
        """``_infos`` of the mesh's own records, or an earlier answer that is not older."""
        if time.monotonic() - self._cached_at_s >= max_age_s:
            self._cache = await self._infos(streams)
            self._cached_at_s = time.monotonic()
        return self._cache

    def _facts_of(self, name: str, info: JsonObject | None) -> StreamFacts:
        """The facts of a stream; without ``info``, of the one that will be made."""
        ours = self._settings.channels
        if info is None:
            return StreamFacts(
                name, ours.replicas, max_age_s=ours.max_age_s, max_bytes=ours.max_bytes
            )
        config = info["config"]
        return StreamFacts(
            name,
            config.get("num_replicas", 1),
            config.get("storage") == "file",
            bool(config.get("allow_atomic")),
            not config.get("no_ack"),
            config.get("retention", "limits"),
            config.get("max_age", 0) / 1e9,
            max(0, config.get("max_bytes", 0)),
            max(0, config.get("max_msgs", 0), config.get("max_msgs_per_subject", 0)),
            config.get("discard") == "new",
            config.get("duplicate_window", 0) / 1e9,
        )


def _servers_of(info: JsonObject) -> Iterable[str]:
    """The servers with a copy; none of a server that is in no cluster."""
    cluster = info.get("cluster") or {}
    if cluster.get("leader"):
        yield cluster["leader"]
    yield from (one["name"] for one in cluster.get("replicas") or ())
