"""Users and API tokens in a bucket that managers alone read, followed by each of them.

    user.{name}       {"name", "hash", "grants": [{"may": [..], "apps"}], "by", "at_ms", "active"}
    token.{sha256}    {"id", "user", "name", "grant", "expires_ms", "at_ms"}
    scim.{kind}.{id}  a user or a group that an identity provider has provisioned, as SCIM has it
    setup             {"sha256"}: digests of the tokens for the first user, while there is none

Names are in base64 in keys, as they have signs that keys do not.  Passwords are argon2 hashes, and
tokens 256 random bits of which the bucket has the digest: its content gives no access.

Users and groups that an identity provider has provisioned (SCIM), as the directory keeps them.

A resource is the JSON object of SCIM.  A user of the provider is called ``oidc:`` and its userName,
which is compared without case: two spellings are one person, also when that person is disabled.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import logging
import secrets
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

import orjson

from mesh.errors import MeshError
from mesh.jetstream import kv
from mesh.jetstream.connection import UNREACHABLE
from mesh.model import names
from mesh.model.access import Grant, grant_of, grant_values
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

    from mesh.model.values import JsonMapping, JsonObject


log = logging.getLogger(__name__)

#: Tokens of one user that are valid at a time: each manager keeps all of them.
TOKENS_OF_USER_MAX: Final = 100
#: Prefix of each token, so that scanners of source code find it.
PREFIX: Final = "mesh_"
_SETUP: Final = "setup"
#: Tokens for the first user that are valid at a time: more than a cluster has managers.
_SETUPS_MAX: Final = 16
_SILENCE_S: Final = 2.0
_ANSWER_S: Final = 2.0

USER: Final = "User"
GROUP: Final = "Group"
#: By kind, the attribute with the name.
NAMES: Final = {USER: "userName", GROUP: "displayName"}


@dataclass(frozen=True, slots=True)
class Provisioned:
    """A user of the provider."""

    name: str
    active: bool
    #: Names of the groups, and values of the roles.
    roles: tuple[str, ...]


def identity_name(user_name: str) -> str:
    """The name of a user of the provider."""
    return f"oidc:{user_name}"


def provisioned(
    resources: Mapping[tuple[str, str], Mapping[str, object]],
) -> dict[str, Provisioned]:
    """The users of these resources by folded name.

    Args:
        resources: by kind and id; fields of another form are left out.
    """
    groups: dict[str, list[str]] = {}
    for (kind, _), values in resources.items():
        if kind == GROUP:
            for member in _objects(values.get("members")):
                groups.setdefault(str(member.get("value")), []).append(str(values["displayName"]))
    users = {}
    for (kind, id_), values in resources.items():
        if kind == USER:
            roles = [str(one.get("value")) for one in _objects(values.get("roles"))]
            name = identity_name(str(values["userName"]))
            # Without the attribute a user is active, as one is after POST of its name alone.
            active = values.get("active", True) is not False
            users[name.casefold()] = Provisioned(name, active, (*groups.get(id_, ()), *roles))
    return users


def _objects(value: object) -> Iterable[JsonMapping]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


@dataclass(frozen=True, slots=True)
class DirectoryUser:
    """A user of the bucket."""

    name: str
    hash: str = field(repr=False)
    grants: tuple[Grant, ...]
    by: str = ""
    at_ms: int = 0
    #: False for a user who may not sign in, and whose tokens are not valid meanwhile.
    active: bool = True


@dataclass(frozen=True, slots=True)
class ApiToken:
    """An API token, without what its owner was shown."""

    id: str
    user: str
    name: str
    grant: Grant
    expires_ms: int
    at_ms: int = 0

    def is_valid(self, now_ms: int) -> bool:
        """Whether it has not expired."""
        return now_ms < self.expires_ms


def digest(token: str) -> str:
    """The digest of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


class Directory:
    """The bucket's contents, as this manager has read them."""

    def __init__(self, js: JetStreamContext, replicas: int = 1) -> None:
        self._js = js
        self._replicas = replicas
        self.users: Mapping[str, DirectoryUser] = {}
        #: By digest.
        self.tokens: Mapping[str, ApiToken] = {}
        #: Resources of SCIM, by kind and id.
        self.resources: Mapping[tuple[str, str], JsonObject] = {}
        #: Their users, by folded name.
        self.provisioned: Mapping[str, Provisioned] = {}
        self._setup: tuple[str, ...] = ()
        #: One token is made at a time, so that all count.
        self._making = asyncio.Lock()
        #: Grows with each change.
        self.version = 0
        #: Sequence of the last change that is in all this.
        self._sequence = 0
        self._complete = asyncio.Event()
        self._changed = asyncio.Event()

    async def start(self) -> None:
        """Make the bucket if it is not there."""
        await kv.ensure_bucket(self._js, names.USERS_BUCKET, self._replicas)

    async def ready(self) -> None:
        """Return when the bucket was read."""
        await self._complete.wait()

    async def follow(self) -> None:
        """Read the bucket and follow it, without end."""
        while True:
            try:
                await self.start()
                await self._read()
            except UNREACHABLE as error:
                log.debug("directory is read again", extra=fields(error=error))
                await asyncio.sleep(0.2)

    async def _read(self) -> None:
        messages: asyncio.Queue[Msg] = asyncio.Queue()
        bucket = names.USERS_BUCKET
        subscription = await self._js.subscribe(
            kv.subject(bucket, ">"), stream=f"KV_{bucket}", ordered_consumer=True, cb=messages.put
        )
        try:
            info = await subscription.consumer_info()
            records: dict[str, bytes] = {}
            received, is_taken = 0, False
            # Delivered by the server, though perhaps not here yet.
            if kv.is_at_end(info, received):
                self._take(records)
                is_taken = True
            while True:
                try:
                    async with asyncio.timeout(_SILENCE_S):
                        message = await messages.get()
                except TimeoutError:
                    async with asyncio.timeout(_ANSWER_S):
                        info = await subscription.consumer_info()
                    if not is_taken and kv.is_at_end(info, received):
                        self._take(records)
                        is_taken = True
                    continue
                at = message.metadata.sequence
                received, is_taken = at.consumer, False
                key = message.subject.removeprefix(kv.subject(bucket, ""))
                if (message.headers or {}).get(kv.OPERATION):
                    records.pop(key, None)
                else:
                    records[key] = message.data
                if not message.metadata.num_pending:
                    self._sequence = at.stream
                    self._take(records)
                    is_taken = True
        finally:
            with contextlib.suppress(*UNREACHABLE):
                await subscription.unsubscribe()

    def _take(self, records: dict[str, bytes]) -> None:
        users: dict[str, DirectoryUser] = {}
        tokens: dict[str, ApiToken] = {}
        resources = {}
        setup: tuple[str, ...] = ()
        for key, data in records.items():
            try:
                values = orjson.loads(data)
                kind, _, rest = key.partition(".")
                if kind == "user":
                    users[values["name"]] = _user(values)
                elif kind == "token":
                    tokens[rest] = _token(values)
                elif kind == "scim":
                    of, _, id_ = rest.partition(".")
                    # The name is what others look for.
                    _ = values[NAMES[of]]
                    resources[of, id_] = values
                elif key == _SETUP:
                    setup = tuple(map(str, values["sha256"]))
            except (ValueError, KeyError, TypeError, AttributeError, MeshError) as error:
                log.warning("record of the directory not read", extra=fields(key=key, error=error))
        self.users, self.tokens, self._setup = users, tokens, setup
        self.resources, self.provisioned = resources, provisioned(resources)
        self.version += 1
        self._complete.set()
        self._changed.set()

    async def _write(self, key: str, value: bytes | None) -> int:
        """Write or delete a key; its sequence, for ``_wait``."""
        return await kv.put(self._js, names.USERS_BUCKET, key, value)

    async def _wait(self, sequence: int) -> None:
        """Wait for the own write, at most so long that a server that restarts delays none."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                while self._sequence < sequence:
                    self._changed.clear()
                    await self._changed.wait()

    async def put_user(self, user: DirectoryUser) -> None:
        """Make or change a user; the token for the first user ends with it."""
        values = {**asdict(user), "grants": [grant_values(one) for one in user.grants]}
        written = await self._write(_user_key(user.name), orjson.dumps(values))
        if self._setup:
            written = await self._write(_SETUP, None)
        await self._wait(written)

    async def delete_user(self, name: str) -> None:
        """Remove a user with its tokens."""
        await self.delete_tokens(name)
        await self._wait(await self._write(_user_key(name), None))

    async def make_token(
        self, user: str, name: str, grant: Grant, expires_ms: int, now_ms: int
    ) -> tuple[str, ApiToken]:
        """A new token: what its owner keeps, and its record; expired ones of the owner go.

        Raises:
            MeshError: MESH-A409 for a user who has ``TOKENS_OF_USER_MAX``.
        """
        async with self._making:
            await self._expect_room(user, now_ms)
            secret = PREFIX + secrets.token_urlsafe(32)
            token = ApiToken(secrets.token_hex(6), user, name, grant, expires_ms, now_ms)
            values = {**asdict(token), "grant": grant_values(grant)}
            await self._wait(await self._write(f"token.{digest(secret)}", orjson.dumps(values)))
        return secret, token

    async def _expect_room(self, user: str, now_ms: int) -> None:
        owner = user.casefold()
        tokens = {key: one for key, one in self.tokens.items() if one.user.casefold() == owner}
        expired = [key for key, one in tokens.items() if one.expires_ms <= now_ms]
        await self._delete(expired)
        if len(tokens) - len(expired) >= TOKENS_OF_USER_MAX:
            raise MeshError(
                "MESH-A409",
                f'user "{user}" has {TOKENS_OF_USER_MAX} tokens',
                hint="Revoke those that no program uses: 'mesh token list', 'mesh token rm'.",
            )

    async def delete_token(self, id_: str) -> None:
        """Revoke a token."""
        await self._delete(key for key, token in self.tokens.items() if token.id == id_)

    async def delete_tokens(self, user: str) -> None:
        """Revoke all tokens of a user, in any spelling of its name."""
        owner = user.casefold()
        await self._delete(k for k, token in self.tokens.items() if token.user.casefold() == owner)

    async def _delete(self, tokens: Iterable[str]) -> None:
        written = 0
        for key in list(tokens):
            written = await self._write(f"token.{key}", None)
        await self._wait(written)

    async def put_resource(self, kind: str, id_: str, values: JsonMapping | None) -> None:
        """Store a resource of SCIM, or remove it with None."""
        data = orjson.dumps(values) if values is not None else None
        await self._wait(await self._write(f"scim.{kind}.{id_}", data))

    def token(self, secret: str) -> ApiToken | None:
        """The record of a token that a request has."""
        return self.tokens.get(digest(secret))

    def is_setup(self, secret: str) -> bool:
        """Whether a request has a token for the first user."""
        hex_digest = digest(secret)
        is_it = any(secrets.compare_digest(one, hex_digest) for one in self._setup)
        return is_it and not self.users

    async def offer_setup(self) -> str | None:
        """A new token for the first user; None if there are users.

        Each manager that starts logs one, and every one of the last ones is valid.
        """
        if self.users:
            return None
        secret = PREFIX + secrets.token_urlsafe(32)
        while True:
            revision, value = await kv.last(self._js, names.USERS_BUCKET, _SETUP)
            digests = orjson.loads(value)["sha256"] if value else []
            values = orjson.dumps({"sha256": [*digests, digest(secret)][-_SETUPS_MAX:]})
            # Managers start at the same time.
            with contextlib.suppress(kv.RevisionConflict):
                await self._wait(
                    await kv.write(self._js, names.USERS_BUCKET, _SETUP, values, revision=revision)
                )
                return secret


def _user_key(name: str) -> str:
    return f"user.{base64.urlsafe_b64encode(name.encode()).decode().rstrip('=')}"


def _user(values: JsonObject) -> DirectoryUser:
    grants = tuple(grant_of(one) for one in values["grants"])
    return DirectoryUser(
        values["name"],
        values["hash"],
        grants,
        values.get("by", ""),
        values.get("at_ms", 0),
        values.get("active", True) is not False,
    )


def _token(values: JsonObject) -> ApiToken:
    return ApiToken(
        values["id"],
        values["user"],
        values["name"],
        grant_of(values["grant"]),
        int(values["expires_ms"]),
        int(values.get("at_ms", 0)),
    )
