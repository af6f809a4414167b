"""The audit: requests to the API, with user, address and result.

Entries are in an append-only stream: the server refuses to delete and to purge its messages, also
for managers.  They leave with their age, and the oldest when the stream is full.  Refusals are
counted (``Refused``), so that who is not signed in fills no disk.  No entry holds a password, a
token or a payload.

Entries of the audit; those of refused requests, counted for each address and minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Final

import orjson
from nats.errors import MaxPayloadError
from nats.js.errors import NotFoundError

from mesh.clock import SystemClock
from mesh.jetstream.connection import UNREACHABLE, api_call
from mesh.model import codec, names
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nats.aio.client import Client
    from nats.js import JetStreamContext

    from mesh.clock import Clock
    from mesh.model.values import JsonMapping, JsonObject


log = logging.getLogger(__name__)

SUBJECT: Final = f"{names.AUDIT_SUBJECT}.api"
MAX_AGE_S: Final = 365 * 86_400
#: Size of the stream by default, and the part of it from which on managers warn.
BYTES_MAX: Final = 1_000_000_000
_WARNED: Final = 0.8
#: Length of a text of an entry.
TEXT_MAX: Final = 256
#: Time after which minutes that are over are looked for, and the fill of the stream.
_LOOK_S: Final = 5.0
_FILL_S: Final = 60.0
#: Entries that wait for NATS; beyond that the log alone has them.
_WAITING_MAX: Final = 10_000
#: Entries that a search looks at, and those that are asked for at once.
SEARCHED: Final = 5000
_AT_ONCE: Final = 100
_RETRY_S: Final = 0.5
_ANSWER_S: Final = 5.0

MINUTE_MS: Final = 60_000
#: Entries of one user and address in a minute before the others are counted.
_OF_USER: Final = 60
#: Addresses that are counted each; the others are counted together.
ADDRESSES_MAX: Final = 256
_OTHERS: Final = ("", "")
_REFUSALS: Final = (401, 403, 429)
_ERROR: Final = 400


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
    #: Requests that the entry stands for: refusals of one address are counted.
    count: int = 1

    @property
    def is_counted(self) -> bool:
        """Whether it is one of many, perhaps: a refusal, or a failure without a user."""
        failed = not self.how and self.status >= _ERROR
        return failed or result_of(self.status) == "refused"


def result_of(status: int) -> str:
    """One word for an HTTP status."""
    if status < _ERROR:
        return "done"
    return "refused" if status in _REFUSALS else "failed"


@dataclass(slots=True)
class _Minute:
    """The refusals of one address, without a user or of one."""

    ends_ms: int
    #: Entries that may still be written one by one.
    left: int
    #: The last that was not written, with the number of them.
    rest: AuditEntry | None = None


@dataclass(slots=True)
class Refused:
    """Decides which refusals are written now, and counts the others.

    The first of an address is written at once, the others as one entry when the minute is over.
    A user who is known has ``_OF_USER`` entries a minute instead of one.
    """

    _minutes: dict[tuple[str, str], _Minute] = field(default_factory=dict)

    def add(self, entry: AuditEntry) -> list[AuditEntry]:
        """The entries to write now: those whose minute is over, and this one or none."""
        entries = self.due(entry.at_ms)
        user = entry.user if entry.how else ""
        key = (entry.source, user)
        if key not in self._minutes and len(self._minutes) >= ADDRESSES_MAX:
            key = _OTHERS
            entry = replace(entry, source="")
        minute = self._minutes.get(key)
        if minute is None:
            left = _OF_USER if user and key != _OTHERS else 1
            minute = self._minutes[key] = _Minute(entry.at_ms + MINUTE_MS, left)
        if minute.left:
            minute.left -= 1
            return [*entries, entry]
        before = minute.rest.count if minute.rest is not None else 0
        minute.rest = replace(entry, count=before + 1)
        return entries

    def due(self, now_ms: int) -> list[AuditEntry]:
        """Entries of the minutes that are over; an address that continues begins another."""
        return list(self._over(now_ms))

    def rest(self) -> list[AuditEntry]:
        """Entries of all minutes, at the end of the process."""
        entries = [one.rest for one in self._minutes.values() if one.rest is not None]
        self._minutes.clear()
        return entries

    def _over(self, now_ms: int) -> Iterator[AuditEntry]:
        # A clock that was set back ends no minute early and none late.
        over = [k for k, m in self._minutes.items() if not 0 < m.ends_ms - now_ms <= MINUTE_MS]
        for key in over:
            minute = self._minutes.pop(key)
            if minute.rest is not None:
                yield minute.rest
                left = _OF_USER if key[1] else 0
                self._minutes[key] = _Minute(now_ms + MINUTE_MS, left)


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

    def fits(self, entry: JsonMapping) -> bool:
        """Whether an entry is one of them."""
        text = f"{entry.get('path', '')} {entry.get('source', '')}".lower()
        return (
            self.user in ("", entry.get("user"))
            and self.app in ("", entry.get("app"))
            and self.method in ("", entry.get("method"))
            and self.result in ("", result_of(int(entry.get("status", 0))))
            and self.text.lower() in text
        )


def filter_of(parameters: Mapping[str, str]) -> AuditFilter:
    """The filter of the parameters ``user``, ``app``, ``method``, ``result`` and ``q``."""
    values = (parameters.get(name, "") for name in ("user", "app", "method", "result", "q"))
    return AuditFilter(*values)


class Audit:
    """Stores entries in order, and reads them."""

    def __init__(
        self,
        client: Client,
        replicas: int = 1,
        bytes_max: int = BYTES_MAX,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._replicas = replicas
        self._bytes_max = bytes_max
        self._clock = clock if clock is not None else SystemClock()
        self._waiting: asyncio.Queue[AuditEntry] = asyncio.Queue(_WAITING_MAX)
        self._refused = Refused()
        self._checked_s = -_FILL_S
        self._is_warned = False

    async def start(self) -> None:
        """Make the stream if it is not there; give one of an earlier version its bound."""
        js = self._client.jetstream()
        try:
            info = await js.stream_info(names.AUDIT_STREAM)
        except NotFoundError:
            config = {
                "name": names.AUDIT_STREAM,
                "subjects": [f"{names.AUDIT_SUBJECT}.>"],
                "storage": "file",
                "num_replicas": self._replicas,
                "max_age": MAX_AGE_S * 1_000_000_000,
                "max_bytes": self._bytes_max,
                "deny_delete": True,
                "deny_purge": True,
                "allow_rollup_hdrs": False,
                "allow_direct": True,
            }
            error = await self._call("STREAM.CREATE", config)
            if error is not None:
                # Most likely the account has no room to reserve.
                log.error(
                    "stream of the audit not made; see manager.audit_bytes",
                    extra=fields(error=error, bytes=self._bytes_max),
                )
            return
        if info.config.max_bytes != self._bytes_max:
            call = f"STREAM.INFO.{names.AUDIT_STREAM}"
            config = (await api_call(self._client, call, None, _ANSWER_S)).get("config", {})
            error = await self._call("STREAM.UPDATE", {**config, "max_bytes": self._bytes_max})
            if error is not None:
                log.error(
                    "stream of the audit has no bound; see manager.audit_bytes",
                    extra=fields(error=error, bytes=self._bytes_max),
                )

    async def _call(self, call: str, config: JsonMapping) -> object:
        subject = f"{call}.{names.AUDIT_STREAM}"
        return (await api_call(self._client, subject, config, _ANSWER_S)).get("error")

    def note(self, entry: AuditEntry) -> None:
        """Have an entry stored; the log has it at once.  Refusals are counted before both."""
        for one in self._refused.add(entry) if entry.is_counted else [entry]:
            self._write(one)

    def _write(self, entry: AuditEntry) -> None:
        entry = replace(entry, path=entry.path[:TEXT_MAX], app=entry.app[:TEXT_MAX])
        log.info("request", extra=fields(**asdict(entry)))
        try:
            self._waiting.put_nowait(entry)
        except asyncio.QueueFull:
            log.error("entry of the audit is in the log only")

    async def follow(self) -> None:
        """Store entries, without end."""
        while True:
            try:
                await self.start()
                break
            except UNREACHABLE as error:
                log.debug("stream of the audit not made yet", extra=fields(error=error))
                await asyncio.sleep(_RETRY_S)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._store())
                tasks.create_task(self._look())
        finally:
            # NATS may be gone: the log has what was counted.
            for one in self._refused.rest():
                self._write(one)

    async def _look(self) -> None:
        """Write what was counted when its minute is over, and warn of a stream that fills."""
        while True:
            for one in self._refused.due(self._clock.wall_ms()):
                self._write(one)
            now_s = self._clock.monotonic_s()
            if now_s - self._checked_s >= _FILL_S:
                self._checked_s = now_s
                with contextlib.suppress(*UNREACHABLE):
                    await self.warn()
            await asyncio.sleep(_LOOK_S)

    async def warn(self) -> None:
        """Log a warning when the stream is filled to ``_WARNED``, once until it is emptier."""
        try:
            info = await self._client.jetstream().stream_info(names.AUDIT_STREAM)
        except NotFoundError:
            return
        limit = info.config.max_bytes or 0
        is_filled = limit > 0 and info.state.bytes >= _WARNED * limit
        if is_filled and not self._is_warned:
            log.warning(
                "the audit is almost full; its oldest entries leave then: copy them, or raise "
                "manager.audit_bytes",
                extra=fields(bytes=info.state.bytes, of=limit),
            )
        self._is_warned = is_filled

    async def _store(self) -> None:
        js = self._client.jetstream()
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

    async def last(self, limit: int, condition: AuditFilter | None = None) -> list[JsonObject]:
        """The last entries that fit, oldest first, of the last ``SEARCHED`` ones."""
        js = self._client.jetstream()
        try:
            state = (await js.stream_info(names.AUDIT_STREAM)).state
        except NotFoundError:
            return []
        entries: list[JsonObject] = []
        last, first = state.last_seq, max(1, state.first_seq, state.last_seq - SEARCHED + 1)
        while last >= first and len(entries) < limit:
            some = range(max(first, last - _AT_ONCE + 1), last + 1)
            read = await asyncio.gather(*(self._one(js, sequence) for sequence in some))
            fits = [e for e in reversed(read) if e and (condition is None or condition.fits(e))]
            entries += fits
            last = some.start - 1
        return entries[:limit][::-1]

    async def _one(self, js: JetStreamContext, sequence: int) -> JsonObject | None:
        # Any server answers the first; one that is behind has not the newest, which the leader has.
        for is_direct in (True, False):
            with contextlib.suppress(NotFoundError):
                message = await js.get_msg(names.AUDIT_STREAM, sequence, direct=is_direct)
                return {"id": sequence, **orjson.loads(message.data or b"{}")}
        return None
