"""Tokens of an identity provider, checked with the provider's keys.

The token has to be signed with a listed asymmetric algorithm, by a key of the provider's JWKS, and
to have our audience, the issuer, and a time of expiry.  Its claim of roles is mapped to grants.
An unknown key has the JWKS read again, at most once a minute for tokens of requests: so a rotated
key is found, and tokens with invented keys cause no requests.  joserfc checks signatures and
claims.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx
import orjson

from mesh.errors import MeshError
from mesh.http.web_answers import ask
from mesh.model.access import Grant, Identity, check_pattern, permissions_of
from mesh.model.values import JsonObject
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mesh.clock import Clock
    from mesh.settings import OidcSettings

    Fetch = Callable[[str], Awaitable[bytes]]

log = logging.getLogger(__name__)

#: No symmetric one: a public key would be a secret then.  And never ``none``.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA", "Ed25519")
TOKEN_CHARS_MAX: Final = 16_384
_AGAIN_S: Final = 60.0
#: Keys are read again after this time, so that a key that was withdrawn does not stay.
_KEYS_S: Final = 3600.0
_TIMEOUT_S: Final = 5.0
_UNREADABLE: Final = (httpx.HTTPError, ValueError, KeyError, TypeError, OSError)


def read_roles(text: str) -> dict[str, tuple[Grant, ...]]:
    """The grants of each value of the claim: ``admins=admin, shop=developer:Shop*``.

    Raises:
        MeshError: MESH-A107 for another form, or an unknown role.
    """
    roles: dict[str, tuple[Grant, ...]] = {}
    for one in text.split(","):
        if not one.strip():
            continue
        value, equals, rest = one.partition("=")
        words, _, apps = rest.partition(":")
        try:
            if not (value.strip() and equals and words.strip()):
                raise ValueError(f'"{one.strip()}" is not VALUE=ROLE or VALUE=ROLE:PATTERN')
            grant = Grant(permissions_of(words.split()), check_pattern(apps.strip() or "*"))
        except (ValueError, MeshError) as error:
            raise _unusable(str(error)) from error
        roles[value.strip()] = (*roles.get(value.strip(), ()), grant)
    return roles


def check_oidc(settings: OidcSettings) -> None:
    """Refuse settings that would accept tokens of others: MESH-A107."""
    if not settings.issuer:
        return
    if not settings.audience:
        raise _unusable("oidc.audience is empty: tokens for other services would be accepted")
    for name, url in (("issuer", settings.issuer), ("jwks_url", settings.jwks_url)):
        if url and not is_secure(url):
            raise _unusable(f"oidc.{name} is not an https URL")
    read_roles(settings.roles)


def is_secure(url: str) -> bool:
    """Whether a URL is an https URL, or one of this machine."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    is_local = parts.hostname in ("127.0.0.1", "localhost", "::1")
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and is_local)
    )


def grants_of(claims: JsonObject, settings: OidcSettings) -> tuple[Grant, ...]:
    """The grants of the values that the claim of roles has; a path of names has dots."""
    value: Any = claims
    for part in settings.roles_claim.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    words = value.split() if isinstance(value, str) else value
    roles = read_roles(settings.roles)
    if not isinstance(words, list):
        return ()
    return tuple(one for word in words if isinstance(word, str) for one in roles.get(word, ()))


@dataclass
class Provider:
    """One provider, with its keys as they were last read."""

    settings: OidcSettings
    clock: Clock
    #: Reads a URL; a test may count.
    fetch: Fetch = field(default_factory=lambda: _fetch)
    _keys: Any = None
    _read_s: float = float("-inf")
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _metadata: JsonObject = field(default_factory=dict)
    _metadata_s: float = float("-inf")

    async def identity(self, token: str, *, is_direct: bool = False) -> Identity:
        """The user of a bearer token; ``is_direct`` as for ``claims``.

        Raises:
            MeshError: MESH-A401 for a token that is not valid, MESH-A108 if the provider's keys
                can't be read.
        """
        claims = await self.claims(token, self.settings.audience, is_direct=is_direct)
        # Some providers sign refresh tokens with the same key, for the same audience.
        if claims.get("token_use", "access") != "access":
            raise _invalid(f"it is no access token but a token of use {claims['token_use']!r}")
        return self.identity_of(claims)

    def identity_of(self, claims: JsonObject) -> Identity:
        """The user of verified claims; MESH-A401 if they have no usable name."""
        name = claims.get(self.settings.user_claim)
        if not isinstance(name, str) or not name or not name.isprintable() or len(name) > 200:
            raise _invalid(f"claim {self.settings.user_claim} is no name")
        # No name of a local user has a colon.
        return Identity(f"oidc:{name}", grants_of(claims, self.settings), "oidc")

    async def claims(
        self, token: str, audience: str, *, is_direct: bool = False, nonce: str | None = None
    ) -> JsonObject:
        """The claims of a token.

        Args:
            token: signed by the provider.
            audience: that it has to have.
            is_direct: the provider itself has sent it, so an unknown key is looked for at once.
            nonce: that it has to have; None for any or none.

        Raises:
            MeshError: as ``identity``.
        """
        from joserfc import jwt
        from joserfc.errors import JoseError

        if len(token) > TOKEN_CHARS_MAX:
            raise _invalid("it is too long")
        key = await self._key_of(_key_id(token), 0.0 if is_direct else _AGAIN_S)
        now_s = self.clock.wall_ms() // 1000
        others: JsonObject = {}
        if nonce is not None:
            others["nonce"] = {"essential": True, "value": nonce}
        registry = jwt.JWTClaimsRegistry(
            now=now_s,
            leeway=int(self.settings.leeway_s),
            iss={"essential": True, "value": self.settings.issuer},
            aud={"essential": True, "value": audience},
            exp={"essential": True},
            sub={"essential": True},
            **others,
        )
        try:
            read = jwt.decode(token, key, algorithms=list(ALGORITHMS))
            registry.validate(read.claims)
        except (JoseError, ValueError, TypeError) as error:
            raise _invalid(f"{error}") from error
        return read.claims

    async def metadata(self) -> JsonObject:
        """The document of the provider's endpoints; MESH-A108 if it can't be read."""
        now_s = self.clock.monotonic_s()
        if now_s - self._metadata_s < _KEYS_S:
            return self._metadata
        try:
            self._metadata = await self._discover()
        except _UNREADABLE as error:
            log.warning("endpoints of the provider not read", extra=fields(error=error))
            raise MeshError(
                "MESH-A108",
                "endpoints of the identity provider can't be read",
                detail=f"{type(error).__name__}: {error}.",
            ) from error
        self._metadata_s = now_s
        return self._metadata

    async def _key_of(self, key_id: str, again_s: float) -> Any:
        """The key of an identifier, if need be after another look at the provider's keys."""
        key = self._cached_key(key_id)
        if key is not None and self.clock.monotonic_s() - self._read_s < _KEYS_S:
            return key
        async with self._turn:
            age_s = self.clock.monotonic_s() - self._read_s
            # Another request may have read them meanwhile.
            if age_s >= again_s and (age_s >= _KEYS_S or self._cached_key(key_id) is None):
                await self._read()
            key = self._cached_key(key_id)
        if key is None:
            raise _invalid("its key is not among the provider's")
        return key

    def _cached_key(self, key_id: str) -> object:
        keys = self._keys.keys if self._keys is not None else ()
        return next((key for key in keys if key.kid == key_id), None)

    async def _read(self) -> None:
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        # Before the request: one that fails is not repeated by every token.
        self._read_s = self.clock.monotonic_s()
        try:
            values = orjson.loads(await self.fetch(await self._jwks_url()))
            # A key of an unknown kind is no reason to refuse the others.
            usable = [one for one in values["keys"] if one.get("kty") in ("RSA", "EC", "OKP")]
            self._keys = KeySet.import_key_set({"keys": usable})
        except (*_UNREADABLE, JoseError) as error:
            log.warning("keys of the provider not read", extra=fields(error=error))
            if self._keys is None:
                raise MeshError(
                    "MESH-A108",
                    "keys of the identity provider can't be read",
                    detail=f"{type(error).__name__}: {error}.",
                ) from error

    async def _jwks_url(self) -> str:
        if self.settings.jwks_url:
            return self.settings.jwks_url
        return str((await self._discover())["jwks_uri"])

    async def _discover(self) -> JsonObject:
        base = self.settings.issuer.rstrip("/")
        metadata: JsonObject = orjson.loads(
            await self.fetch(f"{base}/.well-known/openid-configuration")
        )
        if metadata["issuer"] != self.settings.issuer:
            raise ValueError("the document names another issuer")
        return metadata


def make_provider(settings: OidcSettings, clock: Clock) -> Provider | None:
    """The provider of the settings; None without an issuer.

    Raises:
        MeshError: MESH-A107 for settings that can't be used, or without the extra ``oidc``.
    """
    check_oidc(settings)
    if not settings.issuer:
        return None
    try:
        import joserfc  # noqa: F401 - asked for its presence
    except ImportError as error:
        raise MeshError(
            "MESH-A107",
            "sign-in by an identity provider needs the package joserfc",
            hint="pip install 'nats-event-mesh[oidc]'",
        ) from error
    return Provider(settings, clock)


def _key_id(token: str) -> str:
    """The identifier of a token's key; MESH-A401 without one."""
    import base64

    try:
        head = orjson.loads(base64.urlsafe_b64decode(token.partition(".")[0] + "==="))
        key_id = head["kid"]
    except (ValueError, KeyError, TypeError) as error:
        raise _invalid("it names no key") from error
    if not isinstance(key_id, str):
        raise _invalid("it names no key")
    return key_id


async def _fetch(url: str) -> bytes:
    # A limit of the whole answer: one that comes byte by byte would hold up all tokens.
    async with (
        asyncio.timeout(_TIMEOUT_S),
        httpx.AsyncClient(timeout=_TIMEOUT_S, follow_redirects=False) as client,
    ):
        answer = await ask(client, "GET", url)
    answer.response.raise_for_status()
    return answer.whole()


def _invalid(why: str) -> MeshError:
    return MeshError("MESH-A401", "the token is not valid", detail=f"{why}.")


def _unusable(why: str) -> MeshError:
    return MeshError("MESH-A107", "settings of the identity provider can't be used", detail=why)
