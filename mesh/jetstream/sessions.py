"""Sessions of people who signed in at the pages, in a bucket that managers alone read.

    {sha256 of the cookie}    {"user", "how", "source", "grants"?, "began_ms", "used_ms"}

The cookie is 256 random bits, and the token of forms is derived from it, so the content of the
bucket opens no session.  A session made at one manager is known at the others.  It ends when it was
idle for half an hour, after twelve hours in any case, and when it is ended: at the other managers
within ``FRESH_S``, the time for which a manager keeps what it has read.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import orjson
from nats.js import api
from nats.js.errors import BucketNotFoundError, NotFoundError

from mesh.errors import MeshError
from mesh.jetstream import kv
from mesh.jetstream.connection import UNREACHABLE
from mesh.model import names
from mesh.model.access import Grant, grant_of, grant_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nats.js import JetStreamContext

    from mesh.clock import Clock

IDLE_MS: Final = 1_800_000
AGE_MS: Final = 43_200_000
#: Sessions that are kept; beyond that the one idle for longest ends when another begins.
COUNT_MAX: Final = 1000
#: Time for which a manager uses what it has read of a session.
FRESH_S: Final = 1.0
#: The same while NATS can't be reached.
STALE_S: Final = 30.0
#: The use of a session is written after this time, so that requests write nothing.
WRITE_MS: Final = 60_000
_STREAM: Final = f"KV_{names.SESSIONS_BUCKET}"
_GONE: Final = (BucketNotFoundError, NotFoundError)


@dataclass(frozen=True, slots=True)
class Session:
    """A person who signed in; without users, all on this machine share one."""

    user: str
    #: In every form, so that no other site's page can send one.
    token: str = field(repr=False)
    #: ``password`` or ``oidc``.
    how: str = "password"
    #: Address of the client that signed in.
    source: str = ""
    #: What an identity provider granted at the sign-in; None for a user whose grants are looked up.
    grants: tuple[Grant, ...] | None = None
    began_ms: int = 0
    used_ms: int = 0
    #: Digest of the cookie.
    id: str = field(default="", repr=False)

    def is_over(self, now_ms: int) -> bool:
        """Whether it was idle for too long, or is too old."""
        return now_ms - self.used_ms > IDLE_MS or now_ms - self.began_ms > AGE_MS


@dataclass(slots=True)
class _Known:
    """A session as it was read; None for one that is not there."""

    at_s: float
    session: Session | None
    revision: int


class Sessions:
    """The sessions of a cluster."""

    def __init__(self, js: JetStreamContext, clock: Clock, replicas: int = 1) -> None:
        self._js = js
        self._clock = clock
        self._replicas = replicas
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def begin(
        self,
        user: str,
        *,
        how: str = "password",
        source: str = "",
        grants: Sequence[Grant] | None = None,
    ) -> str:
        """Begin a session; its name, for the cookie.

        Raises:
            MeshError: MESH-A503 while NATS can't be reached.
        """
        name = secrets.token_urlsafe(32)
        now_ms = self._clock.wall_ms()
        given = tuple(grants) if grants is not None else None
        made = Session(user, "", how, source, given, now_ms, now_ms)
        try:
            await self._make_room()
            await kv.put(self._js, names.SESSIONS_BUCKET, _digest(name), _encode(made))
        except UNREACHABLE as error:
            raise _unreachable(error) from error
        return name

    async def find(self, name: str, *, is_used: bool = True) -> Session | None:
        """The session of a cookie; None if it has ended or never was.

        A page that is open and renews itself does not use it.

        Raises:
            MeshError: MESH-A503 while NATS can't be reached and the session was not read lately.
        """
        key = _digest(name)
        known = await self._look(key)
        now_ms = self._clock.wall_ms()
        if known.session is None or known.session.is_over(now_ms):
            return None
        if not is_used:
            return replace(known.session, token=_token(name))
        used = replace(known.session, used_ms=max(now_ms, known.session.used_ms))
        if used.used_ms - known.session.used_ms >= WRITE_MS:
            await self._write(key, used, known)
        return replace(used, token=_token(name))

    async def end(self, name: str) -> None:
        """End the session of a cookie."""
        await self.end_ids([_digest(name)])

    async def end_all(self, user: str) -> int:
        """End each session of a user; returns how many there were."""
        ids = [one.id for one in await self.listed() if one.user == user]
        await self.end_ids(ids)
        return len(ids)

    async def end_ids(self, ids: Sequence[str]) -> None:
        """End sessions by their ids; MESH-A503 while NATS can't be reached."""
        for key in ids:
            self._known.pop(key, None)
            try:
                # Purged, not marked as deleted: nothing of it stays, and a late write is refused.
                subject = kv.subject(names.SESSIONS_BUCKET, key)
                await self._js.purge_stream(_STREAM, subject=subject)
            except _GONE:
                continue
            except UNREACHABLE as error:
                raise _unreachable(error) from error

    async def listed(self) -> list[Session]:
        """The sessions that have not ended, last used first; MESH-A503 as above."""
        now_ms = self._clock.wall_ms()
        found = []
        try:
            bucket = await self._js.key_value(names.SESSIONS_BUCKET)
            watcher = await bucket.watchall(ignore_deletes=True)
            try:
                async for entry in watcher:
                    if entry is None:
                        break
                    session = _decode(entry.value or b"", entry.key)
                    if session is not None and not session.is_over(now_ms):
                        found.append(session)
            finally:
                with contextlib.suppress(*UNREACHABLE):
                    await watcher.stop()  # type: ignore[no-untyped-call]
        except _GONE:
            return []
        except UNREACHABLE as error:
            raise _unreachable(error) from error
        return sorted(found, key=lambda one: -one.used_ms)

    async def _look(self, key: str) -> _Known:
        now_s = self._clock.monotonic_s()
        known = self._known.get(key)
        if known is not None and now_s - known.at_s < FRESH_S:
            return known
        try:
            # Asked of the leader: a copy may not have what was written a moment ago.
            message = await self._js.get_last_msg(
                _STREAM, kv.subject(names.SESSIONS_BUCKET, key), direct=False
            )
        except _GONE:
            self._known.pop(key, None)
            return _Known(now_s, None, 0)
        except UNREACHABLE as error:
            if known is not None and now_s - known.at_s < STALE_S:
                return known
            raise _unreachable(error) from error
        read = _Known(now_s, _decode(message.data or b"", key), message.seq or 0)
        self._keep(key, read)
        return read

    def _keep(self, key: str, read: _Known) -> None:
        self._known[key] = read
        self._known.move_to_end(key)
        while len(self._known) > COUNT_MAX:
            self._known.popitem(last=False)

    async def _write(self, key: str, used: Session, known: _Known) -> None:
        """Note the use, unless the session was ended or noted by another manager meanwhile."""
        with contextlib.suppress(kv.RevisionConflict, *UNREACHABLE):
            revision = await kv.write(
                self._js, names.SESSIONS_BUCKET, key, _encode(used), revision=known.revision
            )
            self._keep(key, _Known(known.at_s, used, revision))

    async def _make_room(self) -> None:
        """Make the bucket if it is not there; end the session idle for longest if it is full."""
        try:
            info = await self._js.stream_info(_STREAM)
        except _GONE:
            # Sessions that are over leave with their age; one that is used is written again.
            config = api.KeyValueConfig(
                bucket=names.SESSIONS_BUCKET, replicas=self._replicas, ttl=AGE_MS / 1000
            )
            await self._js.create_key_value(config)
            return
        if info.state.messages >= COUNT_MAX:
            await self.end_ids([one.id for one in (await self.listed())[COUNT_MAX - 1 :]])


def is_same(given: str, wanted: str) -> bool:
    """Whether two tokens are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode(), wanted.encode())


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _token(name: str) -> str:
    return hmac.new(name.encode(), b"forms", hashlib.sha256).hexdigest()


def _encode(session: Session) -> bytes:
    values: dict[str, Any] = {
        "user": session.user,
        "how": session.how,
        "source": session.source,
        "began_ms": session.began_ms,
        "used_ms": session.used_ms,
    }
    if session.grants is not None:
        values["grants"] = [grant_values(one) for one in session.grants]
    return orjson.dumps(values)


def _decode(data: bytes, key: str) -> Session | None:
    try:
        values = orjson.loads(data)
        given = values.get("grants")
        grants = None if given is None else tuple(grant_of(one) for one in given)
        return Session(
            values["user"], "", values["how"], values["source"], grants,
            int(values["began_ms"]), int(values["used_ms"]), key,
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, MeshError):
        return None


def _unreachable(error: Exception) -> MeshError:
    return MeshError(
        "MESH-A503",
        "sessions can't be read now",
        detail=f"{type(error).__name__}: {error}.",
        hint="NATS can't be reached from this manager. Try again.",
    )
