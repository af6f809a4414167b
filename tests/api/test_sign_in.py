"""Sign-in of people by an identity provider: which answers are accepted, and how it is renewed."""

from __future__ import annotations

import base64
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

import anyio
import orjson
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

from mesh.api.oidc import Provider
from mesh.api.sign_in import CALLBACK, SignIn, make_sign_in
from mesh.clock import SystemClock
from mesh.errors import MeshError
from mesh.model.access import ALL, ROLES, Grant
from mesh.model.sign_in import Attempt, SignedIn
from mesh.settings import OidcSettings
from tests.support.bent_tokens import check_token
from tests.support.idp import AUDIENCE, CLIENT, CLIENT_SECRET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.idp import IdentityProvider

ISSUER: Final = "https://idp.example"
HERE: Final = "http://127.0.0.1:9543/login/oidc"
NOW_S: Final = 1_800_000_000
KEY: Final = ECKey.generate_key("P-256", {"kid": "k1"})
SETTINGS: Final = OidcSettings(
    issuer=ISSUER, audience=AUDIENCE, client_id="pages", roles="ADMIN=admin, SHOP=developer:Shop*",
)  # fmt: skip
DOCUMENT: Final = {
    "issuer": ISSUER,
    "jwks_uri": f"{ISSUER}/keys",
    "authorization_endpoint": f"{ISSUER}/authorize?tenant=1",
    "token_endpoint": f"{ISSUER}/token",
    "userinfo_endpoint": f"{ISSUER}/me",
}


class Clock:
    """A clock that stands still."""

    def monotonic_s(self) -> float:
        return float(NOW_S)

    def wall_ms(self) -> int:
        return NOW_S * 1000


class Bent(SignIn):
    """A sign-in at a provider whose answers the test makes: a sound provider gives none of them."""

    answers: dict[str, tuple[int, dict[str, Any]]]
    asked: list[tuple[str, dict[str, Any]]]

    async def _call(self, method: str, url: str, **more: Any) -> tuple[int, dict[str, Any]]:
        self.asked.append((url, more))
        return self.answers[urlsplit(url).path]


def bent(tokens: dict[str, Any], keys: Any = (KEY,), status: int = 200) -> Bent:
    async def fetch(url: str) -> bytes:
        if url.endswith("/keys"):
            return orjson.dumps(KeySet(list(keys)).as_dict(private=False))
        return orjson.dumps(DOCUMENT)

    made = Bent(Provider(SETTINGS, Clock(), fetch), "pages", "s3cret", "openid")
    made.answers, made.asked = {"/token": (status, tokens), "/me": (200, {})}, []
    return made


ATTEMPT: Final = Attempt("/", "st", "no", "ve")
CLAIMS: Final[dict[str, Any]] = {
    "iss": ISSUER, "aud": "pages", "sub": "ada", "exp": NOW_S + 600, "nonce": "no",
    "roles": ["ADMIN"],
}  # fmt: skip


def signed(claims: dict[str, Any], key: Any = KEY) -> str:
    return jwt.encode({"alg": "ES256", "kid": key.kid}, claims, key)


def encoded(values: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(values)).decode().rstrip("=")


@contextmanager
def refused(why: str) -> Iterator[None]:
    with pytest.raises(MeshError, match="A401") as raised:
        yield
    assert why in (raised.value.detail or "")


def complete(made: SignIn, **answer: str) -> SignedIn:
    given = {"state": "st", "code": "c", **answer}
    return anyio.run(made.complete, ATTEMPT, given, HERE)


def test_the_page_gets_state_nonce_and_the_digest_of_the_verifier() -> None:
    made = bent({})
    page, attempt = anyio.run(made.begin, HERE, "/apps/Shop")
    asked = {key: value[0] for key, value in parse_qs(urlsplit(page).query).items()}
    assert page.startswith(f"{ISSUER}/authorize?tenant=1&")
    assert (asked["state"], asked["nonce"]) == (attempt.state, attempt.nonce)
    assert asked["code_challenge_method"] == "S256"
    assert asked["redirect_uri"] == f"http://127.0.0.1:9543{CALLBACK}"
    assert attempt.verifier not in page
    assert Attempt.from_text(attempt.to_text()) == attempt


@pytest.mark.parametrize("text", ["", "x", "é", encoded({"a": 1}), "W10", "WyIvIiwxLDIsM10"])
def test_a_cookie_of_another_form_is_no_attempt(text: str) -> None:
    assert Attempt.from_text(text) is None


def test_the_host_of_a_request_counts_for_this_machine_only() -> None:
    made = bent({})
    with pytest.raises(MeshError, match="public_url"):
        anyio.run(made.begin, "https://evil.example/login/oidc", "/")
    page, _ = anyio.run(
        replace(made, public_url="https://mesh.example/").begin, "https://evil.example/", "/"
    )
    assert "redirect_uri=https%3A%2F%2Fmesh.example%2Flogin%2Foidc%2Fcallback" in page


def test_a_valid_answer_has_user_grants_and_what_renews_it() -> None:
    made = bent({"id_token": signed(CLAIMS), "refresh_token": "r", "expires_in": 60})
    found = complete(made, iss=ISSUER)
    assert found == SignedIn("oidc:ada", (Grant(ALL),), 60.0, "r")
    (url, sent), *_ = made.asked
    assert url == f"{ISSUER}/token"
    assert sent["data"]["code_verifier"] == "ve"
    assert "s3cret" not in repr(made)


REFUSED: Final[dict[str, Callable[[], tuple[dict[str, Any], dict[str, str]]]]] = {
    "another state": lambda: (CLAIMS, {"state": "other"}),
    "no state": lambda: (CLAIMS, {"state": ""}),
    "another provider's answer": lambda: (CLAIMS, {"iss": "https://evil.example"}),
    "an error": lambda: (CLAIMS, {"error": "access_denied"}),
    "another nonce": lambda: ({**CLAIMS, "nonce": "other"}, {}),
    "no nonce": lambda: ({k: v for k, v in CLAIMS.items() if k != "nonce"}, {}),
    "another audience": lambda: ({**CLAIMS, "aud": "other"}, {}),
    "the API's audience": lambda: ({**CLAIMS, "aud": AUDIENCE}, {}),
    "for another client, too": lambda: ({**CLAIMS, "aud": ["pages", "x"], "azp": "x"}, {}),
    "another issuer": lambda: ({**CLAIMS, "iss": "https://evil.example"}, {}),
    "expired": lambda: ({**CLAIMS, "exp": NOW_S - 31}, {}),
    "not valid yet": lambda: ({**CLAIMS, "nbf": NOW_S + 31}, {}),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_an_answer_that_is_not_to_this_sign_in_is_refused(
    case: Callable[[], tuple[dict[str, Any], dict[str, str]]],
) -> None:
    claims, answer = case()
    with pytest.raises(MeshError, match="A401"):
        complete(bent({"id_token": signed(claims)}), **answer)


@pytest.mark.parametrize(
    "token",
    [
        "",
        f"{encoded({'alg': 'none', 'kid': 'k1'})}.{encoded(CLAIMS)}.",
        signed(CLAIMS, ECKey.generate_key("P-256", {"kid": "k1"})),
        signed(CLAIMS, ECKey.generate_key("P-256", {"kid": "k9"})),
    ],
    ids=["none", "alg none", "another key of the name", "an unknown key"],
)
def test_an_id_token_without_the_providers_signature_is_refused(token: str) -> None:
    with pytest.raises(MeshError, match="A401"):
        complete(bent({"id_token": token}))


def test_clocks_may_differ_by_the_setting() -> None:
    late = signed({**CLAIMS, "exp": NOW_S - 29, "nbf": NOW_S + 29})
    assert complete(bent({"id_token": late})).user == "oidc:ada"


def test_without_a_cookie_no_answer_is_accepted() -> None:
    with refused("not to a sign-in of this browser"):
        anyio.run(bent({}).complete, None, {"state": "st", "code": "c"}, HERE)


def test_roles_of_the_userinfo_endpoint_are_those_of_the_same_subject_only() -> None:
    claims = {k: v for k, v in CLAIMS.items() if k != "roles"}
    made = bent({"id_token": signed(claims), "access_token": "opaque"})
    for subject, grants in (("ada", (Grant(ROLES["developer"], "Shop*"),)), ("eve", ())):
        made.answers["/me"] = 200, {"sub": subject, "roles": ["SHOP"]}
        assert complete(made).grants == grants


def test_a_refused_renewal_ends_and_a_silent_provider_does_not() -> None:
    known = SignedIn("oidc:ada", (), 60.0, "r")
    assert anyio.run(bent({"error": "invalid_grant"}, status=400).renew, known) is None
    with pytest.raises(MeshError, match="A108"):
        anyio.run(bent({"error": "server_error"}, status=500).renew, known)
    other = bent({"id_token": signed({**CLAIMS, "sub": "eve"})})
    with refused("another user"):
        anyio.run(other.renew, known)
    renewed = anyio.run(bent({"id_token": signed(CLAIMS), "refresh_token": "r2"}).renew, known)
    assert renewed is not None
    assert (renewed.refresh_token, renewed.grants) == ("r2", (Grant(ALL),))


# ---- with nanoidp


def _at(idp: IdentityProvider, **more: Any) -> SignIn:
    settings = OidcSettings(
        issuer=idp.url, audience=AUDIENCE, client_id=CLIENT, client_secret=CLIENT_SECRET,
        roles="ADMIN=admin, SHOP=developer:Shop*", **more,
    )  # fmt: skip
    made = make_sign_in(Provider(settings, SystemClock()))
    assert made is not None
    return made


async def _signed_in(made: SignIn, idp: IdentityProvider, user: str) -> SignedIn:
    page, attempt = await made.begin(HERE, "/")
    back = await anyio.to_thread.run_sync(idp.sign_in, page, user)
    answer = {key: value[0] for key, value in parse_qs(urlsplit(back).query).items()}
    found = await made.complete(attempt, answer, HERE)
    # A code holds once.
    with refused("refuses the code"):
        await made.complete(attempt, answer, HERE)
    return found


@pytest.mark.slow
async def test_a_person_signs_in_and_is_renewed_until_the_provider_refuses(
    idp: IdentityProvider,
) -> None:
    made = _at(idp)

    eve = await _signed_in(made, idp, "eve")
    assert (eve.user, eve.grants) == ("oidc:eve", (Grant(ROLES["developer"], "Shop*"),))
    again = await made.renew(eve)
    assert again is not None
    assert (again.user, again.grants) == (eve.user, eve.grants)
    await anyio.to_thread.run_sync(idp.rotate)
    # Another manager, which has not seen the new key yet.
    later = await _at(idp).renew(again)
    assert later is not None
    idp.revoke(later.refresh_token)
    assert await made.renew(later) is None


def test_another_verifier_or_secret_is_refused(idp: IdentityProvider) -> None:
    made = _at(idp)

    async def run(other: SignIn, changed: str) -> None:
        page, attempt = await made.begin(HERE, "/")
        back = await anyio.to_thread.run_sync(idp.sign_in, page, "ada")
        answer = {key: value[0] for key, value in parse_qs(urlsplit(back).query).items()}
        with refused("refuses the code"):
            await other.complete(
                replace(attempt, verifier=changed or attempt.verifier), answer, HERE
            )

    anyio.run(run, made, "x" * 43)
    anyio.run(run, replace(made, client_secret="guess"), "")


def test_a_refresh_token_is_no_access_token(idp: IdentityProvider) -> None:
    made, token = _at(idp), idp.refresh_token("ada", "pw")
    with refused("no access token"):
        anyio.run(made.provider.identity, token)


@pytest.mark.slow
def test_a_real_token_is_refused_once_it_is_changed_or_of_another_time(
    idp: IdentityProvider,
) -> None:
    check_token(_at(idp).provider.settings, idp.token("eve", "pw"), "oidc:eve")
