"""Presence of a manager under its id: the claim of the id, and the heartbeats.

Two processes with one id, by a copied configuration or one that was started twice, would be one
node for all others: the second is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from mesh.control import membership
from mesh.control.election import ManagerCandidate
from mesh.jetstream import kv
from mesh.jetstream.connection import UNREACHABLE
from mesh.model import codec, names
from mesh.model.cluster import NodeRecord, NodeRole
from mesh.processes import machine
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.jetstream.watch import ClusterView
    from mesh.settings import WorkerSettings

log = logging.getLogger(__name__)

_BUCKET: Final = names.CONTROL_BUCKET


@dataclass
class Presence:
    """The record of one manager's process."""

    id: str
    client: Client
    view: ClusterView
    clock: Clock
    times: WorkerSettings
    #: ``host:port`` of the API, once it listens.
    address: str = ""
    incarnation: str = field(default_factory=lambda: secrets.token_hex(4))
    #: Of its record, which the next heartbeat replaces.
    _revision: int = 0

    @property
    def candidate(self) -> ManagerCandidate:
        """This process in the election."""
        return ManagerCandidate(self.id, self.incarnation)

    @property
    def _key(self) -> str:
        return names.node_key(NodeRole.MANAGER, self.id)

    async def claim(self) -> None:
        """Wait until the id is free.

        Raises:
            MeshError: MESH-C110 when another process of this id sends heartbeats.
        """
        claim = membership.NameClaim(self.incarnation)
        while True:
            version, now_s = self.view.version, self.clock.monotonic_s()
            node = self.view.snapshot().node(NodeRole.MANAGER, self.id)
            if node is None or machine.has_ended(node.value):
                break
            said = claim.judge(node, now_s, self.times.ttl_s, self.times.margin_s)
            if said is membership.Claim.TAKEN:
                raise membership.rejection(NodeRole.MANAGER, self.id, node.value.pid)
            if said is membership.Claim.FREE:
                break
            await self.view.changed(version, self._period_s)
        self._revision = self.view.revision(_BUCKET, self._key)

    async def beat(self) -> None:
        """Renew the record, without end.

        Raises:
            MeshError: MESH-C110 when another process has taken this id.
        """
        load = machine.Load()
        identity = NodeRecord(
            id=self.id,
            role=NodeRole.MANAGER,
            incarnation=self.incarnation,
            address="",
            beat=0,
            pid=os.getpid(),
            ready=True,
            machine=machine.name(),
            process_started=machine.started(os.getpid()),
        )
        number = 0
        while True:
            number += 1
            metrics = load.measure(self.clock.monotonic_s())
            record = replace(identity, beat=number, address=self.address, metrics=metrics)
            try:
                self._revision = await self._write(codec.encode(record))
            except kv.RevisionConflict:
                if await self._read_back():
                    continue
            except UNREACHABLE as error:
                log.debug("heartbeat not stored", extra=fields(error=error))
            await asyncio.sleep(self._period_s)

    async def leave(self) -> None:
        """Delete the record, if no other process has written it."""
        with contextlib.suppress(kv.RevisionConflict, *UNREACHABLE):
            await self._write(None)

    @property
    def _period_s(self) -> float:
        return self.times.ttl_s / membership.BEATS_PER_TERM

    async def _write(self, data: bytes | None) -> int:
        js = self.client.jetstream()
        return await kv.write(js, _BUCKET, self._key, data, revision=self._revision)

    async def _read_back(self) -> bool:
        """Learn the revision after a refused heartbeat; False if NATS did not answer.

        The leader has deleted the record, an earlier heartbeat was stored after all, or another
        process has written it.
        """
        try:
            revision, data = await kv.last(self.client.jetstream(), _BUCKET, self._key)
        except UNREACHABLE as error:
            log.debug("heartbeat not read", extra=fields(error=error))
            return False
        other = codec.decode(NodeRecord, data) if data else None
        is_other = other is not None and other.incarnation != self.incarnation
        if other is not None and is_other and not machine.has_ended(other):
            raise membership.rejection(
                NodeRole.MANAGER, self.id, other.pid, was_member=self._revision > 0
            )
        self._revision = revision
        return True
