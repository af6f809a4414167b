"""Tokens of an identity provider: which are accepted, and what their users may do."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import anyio
import httpx
import orjson
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey

from mesh.api.auth import Access
from mesh.api.oidc import Provider, check_oidc, read_roles
from mesh.api.routes import make_app
from mesh.api.users import Users
from mesh.clock import SystemClock
from mesh.errors import MeshError
from mesh.model.access import ALL, ROLES, Grant, Permission
from mesh.settings import OidcSettings
from tests.support.api import TEXT, FakeService
from tests.support.idp import AUDIENCE, identity_provider

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ISSUER: Final = "https://idp.example"
NOW_S: Final = 1_800_000_000
KEY: Final = ECKey.generate_key("P-256", {"kid": "k1"})
SETTINGS: Final = OidcSettings(
    issuer=ISSUER, audience=AUDIENCE, jwks_url=f"{ISSUER}/keys", leeway_s=30.0,
    roles="ADMIN=admin, SHOP=developer:Shop*",
)  # fmt: skip
CLAIMS: Final[dict[str, Any]] = {
    "iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": NOW_S + 600, "iat": NOW_S,
    "roles": ["ADMIN", "other"],
}  # fmt: skip


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = float(NOW_S)

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)


class Keys:
    """The provider's keys, and how often they were asked for."""

    def __init__(self, *keys: Any) -> None:
        self.keys, self.asked = list(keys), 0

    async def fetch(self, url: str) -> bytes:
        self.asked += 1
        return orjson.dumps(KeySet(self.keys).as_dict(private=False))


def signed(claims: dict[str, Any], key: Any = KEY, **header: str) -> str:
    alg = "ES256" if isinstance(key, ECKey) else "RS256"
    return jwt.encode({"alg": alg, "kid": key.kid or "k1", **header}, claims, key)


def encoded(values: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(values)).decode().rstrip("=")


def provider(*keys: Any, clock: Clock | None = None) -> tuple[Provider, Keys]:
    found = Keys(*(keys or (KEY,)))
    return Provider(SETTINGS, clock or Clock(), found.fetch), found


def test_a_valid_token_has_the_grants_of_its_roles() -> None:
    made, _ = provider()
    found = anyio.run(made.identity, signed(CLAIMS))
    assert (found.user, found.how, found.grants) == ("oidc:ada", "oidc", (Grant(ALL),))
    found = anyio.run(made.identity, signed({**CLAIMS, "roles": "SHOP none"}))
    assert found.grants == (Grant(ROLES["developer"], "Shop*"),)
    assert anyio.run(made.identity, signed({**CLAIMS, "roles": 5})).grants == ()


def _without(name: str) -> dict[str, Any]:
    return {key: value for key, value in CLAIMS.items() if key != name}


STRANGER: Final = ECKey.generate_key("P-256", {"kid": "k1"})
PUBLIC: Final = orjson.dumps(KEY.as_dict(private=False))
INVALID: Final[dict[str, Callable[[], str]]] = {
    "another audience": lambda: signed({**CLAIMS, "aud": "other"}),
    "another issuer": lambda: signed({**CLAIMS, "iss": "https://evil.example"}),
    "expired": lambda: signed({**CLAIMS, "exp": NOW_S - 31}),
    "not valid yet": lambda: signed({**CLAIMS, "nbf": NOW_S + 31}),
    "no audience": lambda: signed(_without("aud")),
    "no expiry": lambda: signed(_without("exp")),
    "no subject": lambda: signed(_without("sub")),
    "another key of the same name": lambda: signed(CLAIMS, STRANGER),
    "alg none": lambda: f"{encoded({'alg': 'none', 'kid': 'k1'})}.{encoded(CLAIMS)}.",
    "the public key as a secret": lambda: jwt.encode(
        {"alg": "HS256", "kid": "k1"}, CLAIMS, OctKey.import_key(PUBLIC), algorithms=["HS256"]
    ),
    "an unknown key": lambda: signed(CLAIMS, ECKey.generate_key("P-256", {"kid": "k2"})),
    "no key": lambda: f"{encoded({'alg': 'ES256'})}.{encoded(CLAIMS)}.xx",
    "changed claims": lambda: ".".join(
        (signed(CLAIMS).split(".")[0], encoded({**CLAIMS, "sub": "eve"}), "x" * 86)
    ),
    "no token": lambda: "hello",
    "a long one": lambda: "x" * 100_000,
    "a list as name": lambda: signed({**CLAIMS, "sub": ["ada"]}),
    "a line end in the name": lambda: signed({**CLAIMS, "sub": "a\nb"}),
}


@pytest.mark.parametrize("token", INVALID.values(), ids=INVALID)
def test_an_invalid_token_is_refused(token: Callable[[], str]) -> None:
    made, _ = provider()
    with pytest.raises(MeshError, match="A401"):
        anyio.run(made.identity, token())


def test_clocks_may_differ_by_the_setting() -> None:
    made, _ = provider()
    for claims in ({"exp": NOW_S - 29}, {"nbf": NOW_S + 29}):
        assert anyio.run(made.identity, signed({**CLAIMS, **claims})).user == "oidc:ada"


async def test_a_rotated_key_is_found_and_invented_keys_cause_no_requests() -> None:
    clock = Clock()
    made, keys = provider(clock=clock)
    new = RSAKey.generate_key(2048, {"kid": "k2"})

    async def refused(token: str) -> None:
        with pytest.raises(MeshError, match="A401"):
            await made.identity(token)

    await made.identity(signed(CLAIMS))
    for number in range(20):
        await refused(signed(CLAIMS, ECKey.generate_key("P-256", {"kid": f"x{number}"})))
    assert keys.asked == 1
    keys.keys = [new]
    clock.now_s += 60
    assert (await made.identity(signed(CLAIMS, new))).user == "oidc:ada"
    assert keys.asked == 2
    # The withdrawn key ends with the look at the keys that found the new one.
    await refused(signed(CLAIMS))


@pytest.mark.parametrize(
    "settings",
    [
        OidcSettings(issuer=ISSUER),
        OidcSettings(issuer="http://idp.example", audience="x"),
        OidcSettings(issuer=ISSUER, audience="x", jwks_url="file:///etc/passwd"),
        OidcSettings(issuer=ISSUER, audience="x", roles="a=king"),
        OidcSettings(issuer=ISSUER, audience="x", roles="a"),
    ],
)
def test_settings_that_accept_tokens_of_others_are_refused(settings: OidcSettings) -> None:
    with pytest.raises(MeshError, match="A107"):
        check_oidc(settings)


def test_roles_are_read() -> None:
    assert read_roles("a=admin, b=apps.view monitor:X*, b=viewer:Y") == {
        "a": (Grant(ALL),),
        "b": (
            Grant(frozenset({Permission.APPS_VIEW, Permission.MONITOR}), "X*"),
            Grant(ROLES["viewer"], "Y"),
        ),
    }


@pytest.mark.slow
def test_users_of_a_real_provider_reach_what_their_roles_allow(tmp_path: Path) -> None:
    with identity_provider(tmp_path / "idp") as idp:
        settings = OidcSettings(
            issuer=idp.url, audience=AUDIENCE, roles="ADMIN=admin, SHOP=developer:Shop*"
        )
        clock = SystemClock()
        access = Access(Users(None), bearer=Provider(settings, clock).identity)
        app = make_app(FakeService({"Shop": TEXT}).as_manager, access)
        other = OidcSettings(issuer=idp.url, audience="another")
        strict = make_app(
            FakeService().as_manager, Access(Users(None), bearer=Provider(other, clock).identity)
        )
        ada, eve = idp.token("ada", "pw"), idp.token("eve", "pw")
        idp.rotate()
        later = idp.token("ada", "pw")

        async def ask(app: Any, token: str, path: str) -> int:
            transport = httpx.ASGITransport(app, False)
            async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
                headers = {"Authorization": f"Bearer {token}"}
                return (await client.get(path, headers=headers)).status_code

        async def run() -> list[int]:
            return [
                await ask(app, ada, "/users"),
                await ask(app, later, "/siddhi-apps"),
                await ask(app, eve, "/siddhi-apps/Shop"),
                await ask(app, eve, "/siddhi-apps/Other"),
                await ask(app, eve, "/nodes"),
                await ask(strict, ada, "/siddhi-apps"),
            ]

        # /users is permitted, and there is no directory.
        assert anyio.run(run) == [422, 200, 200, 403, 403, 401]
