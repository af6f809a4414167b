"""The audit: requests to the API, with user, address and result.

Entries are in an append-only stream: the server refuses to delete and to purge its messages, also
for managers.  They leave with their age.  No entry holds a password, a token or a payload.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from nats.js.errors import NotFoundError

from mesh.jetstream.connection import UNREACHABLE, api_subject
from mesh.logs import fields
from mesh.model import names

if TYPE_CHECKING:
    from nats.aio.client import Client

log = logging.getLogger(__name__)

SUBJECT: Final = f"{names.AUDIT_SUBJECT}.api"
MAX_AGE_S: Final = 365 * 86_400
#: Entries that wait for NATS; beyond that the log alone has them.
_WAITING_MAX: Final = 10_000
_RETRY_S: Final = 0.5
_ANSWER_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One request."""

    at_ms: int
    user: str
    #: ``password``, ``token``, ``oidc``, ``setup``, ``anonymous``; empty for an unknown user.
    how: str
    #: Address of the client.
    source: str
    method: str
    path: str
    status: int
    app: str = ""
    #: The permission that the request needed.
    permission: str = ""


class Audit:
    """Stores entries in order, and reads them."""

    def __init__(self, client: Client, replicas: int = 1) -> None:
        self._client = client
        self._replicas = replicas
        self._waiting: asyncio.Queue[AuditEntry] = asyncio.Queue(_WAITING_MAX)

    async def start(self) -> None:
        """Make the stream if it is not there."""
        js = self._client.jetstream()
        try:
            await js.stream_info(names.AUDIT_STREAM)
        except NotFoundError:
            config = {
                "name": names.AUDIT_STREAM,
                "subjects": [f"{names.AUDIT_SUBJECT}.>"],
                "storage": "file",
                "num_replicas": self._replicas,
                "max_age": MAX_AGE_S * 1_000_000_000,
                "deny_delete": True,
                "deny_purge": True,
                "allow_rollup_hdrs": False,
                "allow_direct": True,
            }
            call = api_subject(self._client, f"STREAM.CREATE.{names.AUDIT_STREAM}")
            answer = await self._client.request(call, orjson.dumps(config), timeout=_ANSWER_S)
            error = orjson.loads(answer.data).get("error")
            if error is not None:
                log.warning("stream of the audit not made", extra=fields(error=error))

    def note(self, entry: AuditEntry) -> None:
        """Have an entry stored; the log has it at once."""
        log.info("request", extra=fields(**asdict(entry)))
        try:
            self._waiting.put_nowait(entry)
        except asyncio.QueueFull:
            log.error("entry of the audit is in the log only")

    async def follow(self) -> None:
        """Store entries, without end."""
        js = self._client.jetstream()
        while True:
            try:
                await self.start()
                break
            except UNREACHABLE as error:
                log.debug("stream of the audit not made yet", extra=fields(error=error))
                await asyncio.sleep(_RETRY_S)
        while True:
            entry = await self._waiting.get()
            data = orjson.dumps(entry)
            while True:
                try:
                    await js.publish(SUBJECT, data, timeout=_ANSWER_S)
                    break
                except UNREACHABLE as error:
                    log.debug("entry of the audit not stored yet", extra=fields(error=error))
                    await asyncio.sleep(_RETRY_S)

    async def last(self, limit: int) -> list[dict[str, Any]]:
        """The last entries, oldest first."""
        js = self._client.jetstream()
        try:
            state = (await js.stream_info(names.AUDIT_STREAM)).state
        except NotFoundError:
            return []
        first = max(1, state.first_seq, state.last_seq - limit + 1)
        found: list[dict[str, Any]] = []
        for sequence in range(first, state.last_seq + 1):
            try:
                message = await js.get_msg(names.AUDIT_STREAM, sequence, direct=True)
            except NotFoundError:
                continue
            found.append({"id": sequence, **orjson.loads(message.data or b"{}")})
        return found
