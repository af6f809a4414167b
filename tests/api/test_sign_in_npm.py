"""Sign-in with a second provider, the certified one of npm: what nanoidp does otherwise."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx
import pytest

from mesh.api.oidc import Provider
from mesh.api.sign_in import CALLBACK, make_sign_in
from mesh.cli import signing_in as login
from mesh.client.logins import ask_tokens, login_of
from mesh.clock import SystemClock
from mesh.errors import MeshError
from mesh.model.access import ALL, ROLES, Grant
from mesh.settings import OidcSettings
from tests.support.bent_tokens import check_token
from tests.support.npm_idp import (
    AUDIENCE,
    CLIENT,
    CLIENT_SECRET,
    COMMAND_CLIENT,
    npm_provider,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.api.sign_in import SignIn
    from mesh.model.sign_in import SignedIn
    from tests.support.npm_idp import NpmProvider

pytestmark = pytest.mark.thorough

HERE: Final = "http://127.0.0.1:9543/login/oidc"


@pytest.fixture(scope="module")
def npm_idp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NpmProvider]:
    directory = tmp_path_factory.mktemp("npm") / "idp"
    with npm_provider(directory, f"http://127.0.0.1:9543{CALLBACK}") as made:
        yield made


def _at(idp: NpmProvider) -> SignIn:
    settings = OidcSettings(
        issuer=idp.url, audience=AUDIENCE, client_id=CLIENT, client_secret=CLIENT_SECRET,
        scopes="openid profile offline_access", roles="ADMIN=admin, SHOP=developer:Shop*",
    )  # fmt: skip
    made = make_sign_in(Provider(settings, SystemClock()))
    assert made is not None
    return made


async def _signed_in(made: SignIn, idp: NpmProvider, user: str) -> SignedIn:
    page, attempt = await made.begin(HERE, "/")
    back = await anyio.to_thread.run_sync(idp.sign_in, page, user)
    answer = {key: value[0] for key, value in parse_qs(urlsplit(back).query).items()}
    # This provider says who it is in its answers (RFC 9207).
    assert answer["iss"] == idp.url
    with pytest.raises(MeshError, match="A401"):
        await made.complete(attempt, {**answer, "iss": "https://evil.example"}, HERE)
    return await made.complete(attempt, answer, HERE)


async def test_a_person_signs_in_is_renewed_and_removed(npm_idp: NpmProvider) -> None:
    made = _at(npm_idp)

    eve = await _signed_in(made, npm_idp, "eve")
    assert (eve.user, eve.grants) == ("oidc:eve", (Grant(ROLES["developer"], "Shop*"),))
    again = await made.renew(eve)
    assert again is not None
    assert again.grants == eve.grants
    npm_idp.remove("eve")
    assert await made.renew(again) is None
    # With another key from now on, which the manager has not read yet.
    npm_idp.start()
    ada = await _signed_in(made, npm_idp, "ada")
    assert ada.grants == (Grant(ALL),)
    npm_idp.stop()
    with pytest.raises(MeshError, match="A108"):
        await made.renew(ada)
    npm_idp.start()


@pytest.mark.parametrize("is_device", [True, False], ids=["device code", "browser"])
def test_a_command_gets_a_token_for_the_api_and_renews_it(
    npm_idp: NpmProvider, is_device: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = {
        "authorization_servers": [npm_idp.url], "scopes_supported": ["openid", "profile"],
        "mesh_client_id": COMMAND_CLIENT, "mesh_audience": AUDIENCE,
    }  # fmt: skip
    of, endpoints = login.provider_of(about)
    scopes = login.scopes_of(about, endpoints)
    assert of.resource == AUDIENCE
    if is_device:
        monkeypatch.setattr("mesh.cli.signing_in.time.sleep", lambda _: None)

        def confirm(line: str) -> None:
            if found := re.fullmatch("open (.*)", line):
                assert "Success" in npm_idp.sign_in(found[1], "ada")

        made = login.by_device(of, endpoints["device_authorization_endpoint"], scopes, confirm)
    else:

        def follow(page: str) -> None:
            back = npm_idp.sign_in(page, "ada")
            threading.Thread(target=httpx.get, args=(back,)).start()

        made = login.by_browser(of, endpoints["authorization_endpoint"], scopes, follow)
    provider = _at(npm_idp).provider
    assert anyio.run(provider.identity, made.access_token).grants == (Grant(ALL),)
    check_token(provider.settings, made.access_token, "oidc:ada")
    form = {"grant_type": "refresh_token", "refresh_token": made.refresh_token}
    renewed = login_of(ask_tokens(made, form), made)
    assert anyio.run(provider.identity, renewed.access_token).user == "oidc:ada"
