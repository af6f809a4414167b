"""Verification of apps: on request, and of one after the other in the background.

The leader's background also lets the retention of streams follow readers: see
``mesh.control.verification``.

The background looks at no more than some streams a second, so it costs NATS the same whatever the
number of apps.  It believes what it sees twice: records, states and streams are read one after the
other while the app runs.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from nats.errors import Error as NatsError

from mesh.control.journal import JournalEntry
from mesh.control.verification import Severity, findings, needed, retentions
from mesh.http.bounds import Bound
from mesh.jetstream import channels, evidence
from mesh.jetstream.connection import refusals
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.control.verification import Evidence, Finding
    from mesh.jetstream.blob_store import BlobStore
    from mesh.jetstream.watch import ClusterView
    from mesh.manager.desired_state import DesiredState
    from mesh.model.cluster import AppRecord
    from mesh.settings import Settings

log = logging.getLogger(__name__)

#: Pause of the background after a round, and the JetStream streams that it looks at in a second.
ROUND_S: Final = 60.0
STREAMS_PER_S: Final = 10.0
#: Verifications on request at a time; the next ones wait or are refused.
_REQUESTS_MAX: Final = 8


@dataclass(eq=False, repr=False)
class Verification:
    """The verifications of one manager."""

    _client: Client
    _view: ClusterView
    _desired: DesiredState
    _pieces: BlobStore
    _settings: Settings
    _clock: Clock
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: By app: the findings of the last round that the round before had as well.
    findings: dict[str, tuple[Finding, ...]] = field(default_factory=dict)
    _last: dict[str, tuple[Finding, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._turns = Bound(_REQUESTS_MAX, "requests wait for a verification")

    async def verify(self, app: str) -> Sequence[Finding]:
        """The findings about an app now; none for a healthy one.

        Raises:
            MeshError: MESH-A404 for an app that is not deployed, MESH-A503 when NATS does not
                answer.
        """
        with self._turns.turn(), refusals():
            async with self._turn:
                record = self._desired.get(app).value
                if gone := await evidence.missing(self._client.jetstream()):
                    return evidence.findings(app, gone)
                return findings(await self._evidence(record))

    def latest(self) -> list[Finding]:
        """The findings of all apps, as of the last round."""
        return [one for ones in self.findings.values() for one in ones]

    async def run(self, note: Callable[[JournalEntry], None], leads: Callable[[], bool]) -> None:
        """Verify all apps again and again, without end; the leader notes new faults."""
        while True:
            await asyncio.sleep(ROUND_S)
            await self.round(note if leads() else None)

    async def round(self, note: Callable[[JournalEntry], None] | None) -> None:
        """Verify each app that runs, with pauses; ``note`` takes faults that are new."""
        apps = [one.value.spec.name for one in self._view.snapshot().apps]
        self.findings = _of_apps(self.findings, set(apps))
        self._last = _of_apps(self._last, set(apps))
        for app in apps:
            # Read for each app: others may be undeployed during a round.
            record = self._desired.record(app)
            if record is None or record.deleting or record.held:
                continue
            try:
                seen = await self._evidence(record)
                results = tuple(findings(seen))
                if note is not None and self._settings.channels.keep_unread:
                    await self._keep(seen, note)
            # It is tried again in the next round.
            except (TimeoutError, NatsError, OSError, KeyError, ValueError) as error:
                log.debug("app not verified", extra=fields(app=app, error=error))
                continue
            before = {_key(one) for one in self._last.get(app, ())}
            old_keys = {_key(one) for one in self.findings.get(app, ())}
            self._last[app] = results
            self.findings[app] = tuple(one for one in results if _key(one) in before)
            for one in self.findings[app] if note is not None else ():
                if (
                    one.severity is Severity.FAULT
                    and _key(one) not in old_keys
                    and note is not None
                ):
                    note(JournalEntry(f"found {one.kind} in {one.where}", one.text, app=app))
            await asyncio.sleep(len(list(channels.js_streams(record.spec))) / STREAMS_PER_S)

    async def _evidence(self, record: AppRecord) -> Evidence:
        snapshot = self._view.snapshot()
        now_s = self._clock.wall_ms() / 1000
        replicas = self._settings.channels.replicas
        return await evidence.collect(self._client, self._pieces, record, snapshot, replicas, now_s)

    async def _keep(self, seen: Evidence, note: Callable[[JournalEntry], None]) -> None:
        """Let the retention of an app's streams follow its groups."""
        now_s = self._clock.wall_ms() / 1000
        ages_s = await channels.ages_s(self._client, needed(seen), now_s)
        for one in retentions(seen, ages_s):
            if not await channels.change(self._client, one):
                continue
            message = f"keeps messages of {one.js_stream} for {one.max_age_s:,.0f} s"
            why = f"group {one.group} has not processed the oldest" if one.group else "as before"
            note(JournalEntry(message, why, app=seen.record.spec.name))

    def figures(self) -> Mapping[tuple[str, str, str], int]:
        """By app, severity and kind: number of findings of the last round."""
        counts: dict[tuple[str, str, str], int] = {}
        for app, results in self.findings.items():
            for one in results:
                key = app, one.severity.value, one.kind
                counts[key] = counts.get(key, 0) + 1
        return counts


def _key(finding: Finding) -> tuple[str, str]:
    return finding.kind, finding.where


def _of_apps(
    results: Mapping[str, tuple[Finding, ...]], apps: set[str]
) -> dict[str, tuple[Finding, ...]]:
    return {app: ones for app, ones in results.items() if app in apps}
