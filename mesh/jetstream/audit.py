"""The audit: requests to the API, with user, address and result.

Entries are in an append-only stream: the server refuses to delete and to purge its messages, also
for managers.  They leave with their age.  No entry holds a password, a token or a payload.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from nats.errors import MaxPayloadError
from nats.js.errors import NotFoundError

from mesh.jetstream.connection import UNREACHABLE, api_call
from mesh.logs import fields
from mesh.model import codec, names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nats.aio.client import Client
    from nats.js import JetStreamContext

log = logging.getLogger(__name__)

SUBJECT: Final = f"{names.AUDIT_SUBJECT}.api"
MAX_AGE_S: Final = 365 * 86_400
#: Entries that wait for NATS; beyond that the log alone has them.
_WAITING_MAX: Final = 10_000
#: Entries that a search looks at, and those that are asked for at once.
SEARCHED: Final = 5000
_AT_ONCE: Final = 100
_REFUSALS: Final = (401, 403, 429)
_ERROR: Final = 400
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


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """The entries that are wanted; an empty value is no condition."""

    user: str = ""
    app: str = ""
    method: str = ""
    #: ``done``, ``refused`` (401, 403, 429) or ``failed``.
    result: str = ""
    #: A part of the path or the address, without regard to case.
    text: str = ""

    def fits(self, entry: Mapping[str, Any]) -> bool:
        """Whether an entry is one of them."""
        told = f"{entry.get('path', '')} {entry.get('source', '')}".lower()
        return (
            self.user in ("", entry.get("user"))
            and self.app in ("", entry.get("app"))
            and self.method in ("", entry.get("method"))
            and self.result in ("", result_of(int(entry.get("status", 0))))
            and self.text.lower() in told
        )


def filter_of(given: Mapping[str, str]) -> AuditFilter:
    """The filter of the parameters ``user``, ``app``, ``method``, ``result`` and ``q``."""
    values = (given.get(name, "") for name in ("user", "app", "method", "result", "q"))
    return AuditFilter(*values)


def result_of(status: int) -> str:
    """One word for an HTTP status."""
    if status < _ERROR:
        return "done"
    return "refused" if status in _REFUSALS else "failed"


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
            call = f"STREAM.CREATE.{names.AUDIT_STREAM}"
            error = (await api_call(self._client, call, config, _ANSWER_S)).get("error")
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
            data = codec.encode(entry)
            while True:
                try:
                    await js.publish(SUBJECT, data, timeout=_ANSWER_S)
                    break
                except MaxPayloadError:
                    log.error(
                        "entry of the audit is in the log only", extra=fields(bytes=len(data))
                    )
                    break
                except UNREACHABLE as error:
                    log.debug("entry of the audit not stored yet", extra=fields(error=error))
                    await asyncio.sleep(_RETRY_S)

    async def last(self, limit: int, wanted: AuditFilter | None = None) -> list[dict[str, Any]]:
        """The last entries that fit, oldest first, of the last ``SEARCHED`` ones."""
        js = self._client.jetstream()
        try:
            state = (await js.stream_info(names.AUDIT_STREAM)).state
        except NotFoundError:
            return []
        found: list[dict[str, Any]] = []
        last, first = state.last_seq, max(1, state.first_seq, state.last_seq - SEARCHED + 1)
        while last >= first and len(found) < limit:
            some = range(max(first, last - _AT_ONCE + 1), last + 1)
            read = await asyncio.gather(*(self._one(js, sequence) for sequence in some))
            fits = [e for e in reversed(read) if e and (wanted is None or wanted.fits(e))]
            found += fits
            last = some.start - 1
        return found[:limit][::-1]

    async def _one(self, js: JetStreamContext, sequence: int) -> dict[str, Any] | None:
        # Any server answers the first; one that is behind has not the newest, which the leader has.
        for is_direct in (True, False):
            with contextlib.suppress(NotFoundError):
                message = await js.get_msg(names.AUDIT_STREAM, sequence, direct=is_direct)
                return {"id": sequence, **orjson.loads(message.data or b"{}")}
        return None
