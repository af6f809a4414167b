"""Sessions of people who signed in at the pages or the API, in a bucket that managers alone read.

    {sha256 of the cookie}    {"user", "how", "source", "began_ms", "used_ms",
                               "mark"?, "grants"?, "renewal"?: of an identity provider}

The cookie, or the token of a login at the API, is 256 random bits.  The token of forms is derived
from it, and so is the key that a refresh token is encrypted with: the content of the bucket opens
no session, here or elsewhere.  A session made at one manager is known at the others.  It ends when
it was idle for half an hour, after twelve hours in any case, and when it is ended: at the other
managers within ``FRESH_S``, the time for which a manager keeps what it has read.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Final

import orjson
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from nats.js.errors import BucketNotFoundError, NotFoundError

from mesh.errors import MeshError
from mesh.jetstream import kv
from mesh.jetstream.connection import UNREACHABLE, unreachable
from mesh.jetstream.secret_store import decrypt, encrypt
from mesh.model import names
from mesh.model.access import Grant, grant_of, grant_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nats.js import JetStreamContext

    from mesh.clock import Clock
    from mesh.model.sign_in import SignedIn
    from mesh.model.values import JsonObject

IDLE_MS: Final = 1_800_000
AGE_MS: Final = 43_200_000
#: Sessions that are kept; beyond that the one idle for longest ends when another begins.
COUNT_MAX: Final = 1000
#: Sessions of one user; beyond that the user's own that is idle for longest ends.
OF_USER_MAX: Final = 20
#: Time for which a manager uses what it has read of a session.
FRESH_S: Final = 1.0
#: The same while NATS can't be reached.
STALE_S: Final = 30.0
#: The use of a session is written after this time, so that requests write nothing.
WRITE_MS: Final = 60_000
_STREAM: Final = f"KV_{names.SESSIONS_BUCKET}"
_GONE: Final = (BucketNotFoundError, NotFoundError)


@dataclass(frozen=True, slots=True)
class Renewal:
    """The part of a session that an identity provider confirms from time to time."""

    #: The encrypted refresh token; empty if the provider gave none.
    sealed: str = field(default="", repr=False)
    #: The time for which a confirmation holds if nothing can renew it.
    valid_ms: int = 0
    #: The last request to the provider, and its last confirmation.
    asked_ms: int = 0
    confirmed_ms: int = 0


@dataclass(frozen=True, slots=True)
class UserSession:
    """A person who signed in; without users, all on this machine share one."""

    user: str
    #: In every form, so that no other site's page can send one.
    token: str = field(repr=False)
    #: ``password`` or ``oidc`` at the pages, ``login`` at the API.
    how: str = "password"
    #: Address of the client that signed in.
    source: str = ""
    #: What an identity provider granted at the sign-in; None for a user whose grants are looked up.
    grants: tuple[Grant, ...] | None = None
    began_ms: int = 0
    used_ms: int = 0
    #: Digest of the cookie.
    id: str = field(default="", repr=False)
    #: None for a user of the directory or of a users file.
    renewal: Renewal | None = None
    #: Digest of the user's password hash at the sign-in; empty without one.
    mark: str = field(default="", repr=False)

    def is_over(self, now_ms: int) -> bool:
        """Whether it was idle for too long, or is too old."""
        return now_ms - self.used_ms > IDLE_MS or now_ms - self.began_ms > AGE_MS


@dataclass(slots=True)
class _CachedSession:
    """A session as it was read; None for one that is not there."""

    at_s: float
    session: UserSession | None
    revision: int


class UserSessions:
    """The sessions of a cluster."""

    def __init__(self, js: JetStreamContext, clock: Clock, replicas: int = 1) -> None:
        self._js = js
        self._clock = clock
        self._replicas = replicas
        #: Most sessions, of all users.
        self.count_max = COUNT_MAX
        self._cache: OrderedDict[str, _CachedSession] = OrderedDict()

    async def begin(
        self,
        user: str,
        *,
        how: str = "password",
        source: str = "",
        by: SignedIn | None = None,
        began_ms: int | None = None,
        mark: str = "",
    ) -> str:
        """Begin a session; its name, for the cookie.

        Args:
            user: of the session.
            how: it was recognised.
            source: address of the client.
            by: the answer of an identity provider, if one recognised the user.
            began_ms: time of the sign-in, if an earlier one is continued.
            mark: digest of the user's password hash, which ends the session when it changes.

        Raises:
            MeshError: MESH-A503 while NATS can't be reached.
        """
        name = secrets.token_urlsafe(32)
        now_ms = self._clock.wall_ms()
        session = UserSession(user, "", how, source, None, began_ms or now_ms, now_ms, mark=mark)
        if by is not None:
            session = _confirmed(session, name, by, now_ms)
        try:
            await self._make_room(user)
            await kv.put(self._js, names.SESSIONS_BUCKET, digest(name), _encode(session))
        except UNREACHABLE as error:
            raise unreachable(error) from error
        return name

    async def find(self, name: str, *, is_used: bool = True) -> UserSession | None:
        """The session of a cookie; None if it has ended or never was.

        A page that is open and renews itself does not use it.

        Raises:
            MeshError: MESH-A503 while NATS can't be reached and the session was not read lately.
        """
        key = digest(name)
        cached = await self._look(key)
        now_ms = self._clock.wall_ms()
        if cached.session is None or cached.session.is_over(now_ms):
            return None
        if not is_used:
            return replace(cached.session, token=_token(name))
        used = replace(cached.session, used_ms=max(now_ms, cached.session.used_ms))
        if used.used_ms - cached.session.used_ms >= WRITE_MS:
            await self._write(key, used, cached)
        return replace(used, token=_token(name))

    async def claim(self, name: str) -> bool:
        """Whether this manager is the one to ask the provider now; one of all is.

        A refresh token often holds once, so two managers must not use it.
        """
        key = digest(name)
        cached, now_ms = await self._look(key), self._clock.wall_ms()
        if cached.session is None or cached.session.renewal is None:
            return False
        renewal = replace(cached.session.renewal, asked_ms=now_ms)
        return await self._write(key, replace(cached.session, renewal=renewal), cached)

    async def renew(self, name: str, by: SignedIn) -> UserSession | None:
        """Note the provider's confirmation; the session, None if it was ended meanwhile."""
        key = digest(name)
        cached = await self._look(key)
        if cached.session is None:
            return None
        session = _confirmed(cached.session, name, by, self._clock.wall_ms())
        if not await self._write(key, session, cached):
            # The use of the session was noted meanwhile, or the session was ended.
            self._cache.pop(key, None)
            cached = await self._look(key)
            if cached.session is None:
                return None
            session = replace(cached.session, grants=session.grants, renewal=session.renewal)
            await self._write(key, session, cached)
        return replace(session, token=_token(name))

    async def end(self, name: str) -> None:
        """End the session of a cookie."""
        await self.end_ids([digest(name)])

    async def end_all(self, user: str) -> int:
        """End each session of a user; returns how many there were."""
        ids = [one.id for one in await self.listed() if one.user == user]
        await self.end_ids(ids)
        return len(ids)

    async def end_ids(self, ids: Sequence[str]) -> None:
        """End sessions by their ids; MESH-A503 while NATS can't be reached."""
        for key in ids:
            self._cache.pop(key, None)
            try:
                # Purged, not marked as deleted: nothing of it stays, and a late write is refused.
                subject = kv.subject(names.SESSIONS_BUCKET, key)
                await self._js.purge_stream(_STREAM, subject=subject)
            except _GONE:
                continue
            except UNREACHABLE as error:
                raise unreachable(error) from error

    async def listed(self) -> list[UserSession]:
        """The sessions that have not ended, last used first; MESH-A503 as above."""
        now_ms = self._clock.wall_ms()
        try:
            stored = await kv.entries(self._js, names.SESSIONS_BUCKET)
        except UNREACHABLE as error:
            raise unreachable(error) from error
        read = (_decode(one.data or b"", key) for key, one in stored.items())
        sessions = [one for one in read if one is not None and not one.is_over(now_ms)]
        return sorted(sessions, key=lambda one: -one.used_ms)

    async def _look(self, key: str) -> _CachedSession:
        now_s = self._clock.monotonic_s()
        cached = self._cache.get(key)
        if cached is not None and now_s - cached.at_s < FRESH_S:
            return cached
        try:
            # Asked of the leader: a copy may not have what was written a moment ago.
            message = await self._js.get_last_msg(
                _STREAM, kv.subject(names.SESSIONS_BUCKET, key), direct=False
            )
        except _GONE:
            self._cache.pop(key, None)
            return _CachedSession(now_s, None, 0)
        except UNREACHABLE as error:
            if cached is not None and now_s - cached.at_s < STALE_S:
                return cached
            raise unreachable(error) from error
        read = _CachedSession(now_s, _decode(message.data or b"", key), message.seq or 0)
        self._keep(key, read)
        return read

    def _keep(self, key: str, read: _CachedSession) -> None:
        self._cache[key] = read
        self._cache.move_to_end(key)
        while len(self._cache) > self.count_max:
            self._cache.popitem(last=False)

    async def _write(self, key: str, used: UserSession, cached: _CachedSession) -> bool:
        """Write a session, unless it was ended or written by another manager meanwhile."""
        try:
            revision = await kv.write(
                self._js, names.SESSIONS_BUCKET, key, _encode(used), revision=cached.revision
            )
        except (kv.RevisionConflict, *UNREACHABLE):
            return False
        self._keep(key, _CachedSession(cached.at_s, used, revision))
        return True

    async def _make_room(self, user: str) -> None:
        """Make the bucket if it is not there; end sessions of a user, or of all, above the most.

        Those that were idle for longest end.
        """
        try:
            info = await self._js.stream_info(_STREAM)
        except _GONE:
            # Sessions that are over leave with their age; one that is used is written again.
            age_s = AGE_MS / 1000
            await kv.ensure_bucket(self._js, names.SESSIONS_BUCKET, self._replicas, age_s)
            return
        if info.state.messages >= min(OF_USER_MAX, self.count_max):
            listed = await self.listed()
            excess = [one.id for one in listed if one.user == user][OF_USER_MAX - 1 :]
            others = [one.id for one in listed if one.id not in excess]
            await self.end_ids([*excess, *others[self.count_max - 1 :]])


def is_same(token: str, expected: str) -> bool:
    """Whether two tokens are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(token.encode(), expected.encode())


def digest(name: str) -> str:
    """The key of a session, which does not give its name away."""
    return hashlib.sha256(name.encode()).hexdigest()


def _token(name: str) -> str:
    return hmac.new(name.encode(), b"forms", hashlib.sha256).hexdigest()


def refresh_token(session: UserSession, name: str) -> str:
    """The refresh token of a session, by its cookie; empty without one."""
    if session.renewal is None or not session.renewal.sealed:
        return ""
    return decrypt(_key(name), session.user, base64.b64decode(session.renewal.sealed))


def _confirmed(session: UserSession, name: str, by: SignedIn, now_ms: int) -> UserSession:
    sealed = ""
    if by.refresh_token:
        sealed = base64.b64encode(encrypt(_key(name), session.user, by.refresh_token)).decode()
    renewal = Renewal(sealed, int(by.valid_s * 1000), now_ms, now_ms)
    return replace(session, grants=by.grants, renewal=renewal)


def _key(name: str) -> bytes:
    derived = HKDF(hashes.SHA256(), length=32, salt=None, info=b"mesh refresh token")
    return derived.derive(name.encode())


def _encode(session: UserSession) -> bytes:
    values: JsonObject = {
        "user": session.user,
        "how": session.how,
        "source": session.source,
        "began_ms": session.began_ms,
        "used_ms": session.used_ms,
    }
    if session.grants is not None:
        values["grants"] = [grant_values(one) for one in session.grants]
    if session.mark:
        values["mark"] = session.mark
    if session.renewal is not None:
        values["renewal"] = asdict(session.renewal)
    return orjson.dumps(values)


def _decode(data: bytes, key: str) -> UserSession | None:
    try:
        values = orjson.loads(data)
        raw_grants = values.get("grants")
        grants = None if raw_grants is None else tuple(grant_of(one) for one in raw_grants)
        renewal = Renewal(**values["renewal"]) if "renewal" in values else None
        return UserSession(
            values["user"], "", values["how"], values["source"], grants,
            int(values["began_ms"]), int(values["used_ms"]), key, renewal,
            str(values.get("mark", "")),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, MeshError):
        return None
