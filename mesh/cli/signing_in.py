"""``mesh login`` and ``mesh logout``: sign-in of commands by the manager's identity provider.

The manager names its provider.  With the provider's device flow (RFC 8628) a person confirms a code
in any browser.  Without it, or with ``--browser``, the browser of this machine is sent to the
provider, and back to an address of this process (RFC 8252, with PKCE).
"""

from __future__ import annotations

import secrets
import time
import webbrowser
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import typer

from mesh.api.oidc import is_secure
from mesh.client import logins
from mesh.client.logins import Login, ask_tokens, failed, login_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.client import ClientContext
    from mesh.model.values import JsonObject

METADATA: Final = "/.well-known/oauth-protected-resource"
_DEVICE: Final = "urn:ietf:params:oauth:grant-type:device_code"
#: A person has so long to sign in.
_LIMIT_S: Final = 300.0
_TIMEOUT_S: Final = 10.0


def sign_in(at: ClientContext, *, browser: bool) -> None:
    """Sign in at the provider, by device code or ``browser``, and keep the tokens."""
    from mesh.cli.options import CommandClient

    path = _path(at)
    nobody = replace(at, user="", password="", token="", login="")
    with CommandClient(nobody) as client:
        about = client.provider()
    if not is_secure(at.server):
        raise failed(f"Tokens are not sent to {at.server}, which has no TLS.")
    of, endpoints = provider_of(about)
    scopes = scopes_of(about, endpoints)
    if endpoints.get("device_authorization_endpoint") and not browser:
        login = by_device(of, endpoints["device_authorization_endpoint"], scopes, typer.echo)
    else:
        login = by_browser(of, endpoints["authorization_endpoint"], scopes, _open)
    with CommandClient(replace(nobody, token=login.access_token)) as client:
        user = client.me()["user"]
    logins.keep(path, at.server, login)
    typer.echo(f"signed in at {at.server} as {user}")


def sign_out(at: ClientContext) -> None:
    """Forget the tokens of a cluster, and withdraw them at the provider."""
    path = _path(at)
    login = logins.find(path, at.server)
    if login is None:
        typer.echo(f"not signed in at {at.server}")
        return
    logins.keep(path, at.server, None)
    if login.revocation_endpoint and login.refresh_token:
        form = {"token": login.refresh_token, "client_id": login.client_id}
        try:
            httpx.post(login.revocation_endpoint, data=form, timeout=_TIMEOUT_S).raise_for_status()
        except httpx.HTTPError as error:
            typer.echo(f"the token was not withdrawn at the provider: {error}", err=True)
    typer.echo(f"signed out at {at.server}")


def _path(at: ClientContext) -> Path:
    if not at.login:
        raise failed("Another user is given: by --user, --password, --token or the environment.")
    return Path(at.login)


def provider_of(about: JsonObject) -> tuple[Login, JsonObject]:
    """An empty login of the manager's provider, and the provider's endpoints; MESH-U114."""
    issuer = str(about["authorization_servers"][0])
    try:
        url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        endpoints: JsonObject = httpx.get(url, timeout=_TIMEOUT_S).raise_for_status().json()
        token_endpoint = str(endpoints["token_endpoint"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise failed(f"The identity provider {issuer} does not answer.") from error
    named = [endpoints.get(one) for one in _ENDPOINTS if endpoints.get(one)]
    if endpoints.get("issuer") != issuer or not all(is_secure(str(one)) for one in named):
        raise failed(f"The identity provider {issuer} names another issuer, or URLs without TLS.")
    resource = str(about.get("mesh_audience", ""))
    return Login(
        token_endpoint,
        str(about["mesh_client_id"]),
        "",
        revocation_endpoint=str(endpoints.get("revocation_endpoint") or ""),
        # RFC 8707: a resource is a URI.
        resource=resource if urlsplit(resource).scheme else "",
    ), endpoints


_ENDPOINTS: Final = (
    "token_endpoint", "authorization_endpoint", "device_authorization_endpoint",
    "revocation_endpoint",
)  # fmt: skip


def scopes_of(about: JsonObject, endpoints: JsonObject) -> str:
    """The scopes of the manager, and the one for a refresh token where the provider has it."""
    scopes = [str(one) for one in about.get("scopes_supported", ())]
    if "offline_access" in endpoints.get("scopes_supported", ()):
        scopes.append("offline_access")
    return " ".join(dict.fromkeys(scopes))


def by_device(of: Login, endpoint: str, scopes: str, say: Callable[[str], None]) -> Login:
    """The login that a person confirms with a code in any browser; MESH-U114."""
    form = {"client_id": of.client_id, "scope": scopes}
    if of.resource:
        form["resource"] = of.resource
    try:
        answer = httpx.post(endpoint, data=form, timeout=_TIMEOUT_S)
        begun: JsonObject = answer.raise_for_status().json()
        code, page = str(begun["device_code"]), str(begun["verification_uri"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise failed("The identity provider gives no device code.") from error
    say(f"open {begun.get('verification_uri_complete', page)}")
    say(f"and confirm the code {begun.get('user_code', '')}")
    interval_s = float(begun.get("interval", 5))
    ends_s = time.monotonic() + min(float(begun.get("expires_in", _LIMIT_S)), 2 * _LIMIT_S)
    while time.monotonic() < ends_s:
        time.sleep(interval_s)
        tokens = ask_tokens(of, {"grant_type": _DEVICE, "device_code": code})
        if tokens.get("error") == "slow_down":
            interval_s += 5.0
        elif tokens.get("error") != "authorization_pending":
            return login_of(tokens, of)
    raise failed("The code was not confirmed in time.")


def by_browser(of: Login, endpoint: str, scopes: str, show: Callable[[str], None]) -> Login:
    """The login of the browser that ``show`` opens with the provider's page; MESH-U114."""
    try:
        from authlib.oauth2.rfc7636 import create_s256_code_challenge
    except ImportError as error:
        raise failed(
            "The package authlib is missing: pip install 'nats-event-mesh[oidc]'."
        ) from error

    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    with _Listener(state) as listener:
        query = {
            "response_type": "code",
            "client_id": of.client_id,
            "redirect_uri": listener.url,
            "scope": scopes,
            "state": state,
            "code_challenge": create_s256_code_challenge(verifier),
            "code_challenge_method": "S256",
            **({"resource": of.resource} if of.resource else {}),
            **({"prompt": "consent"} if "offline_access" in scopes.split() else {}),
        }
        show(f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(query)}")
        answer = listener.wait(_LIMIT_S)
    if "code" not in answer:
        raise failed(f"The identity provider answers {answer.get('error', 'nothing')[:80]!r}.")
    form = {
        "grant_type": "authorization_code",
        "code": answer["code"],
        "redirect_uri": listener.url,
        "code_verifier": verifier,
    }
    return login_of(ask_tokens(of, form), of)


class _Listener(HTTPServer):
    """Waits for the browser on a free port of this machine."""

    #: Between two looks at the clock.
    timeout = 1.0

    def __init__(self, state: str) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.state = state
        self.answer: dict[str, str] = {}
        self.url = f"http://127.0.0.1:{self.server_port}/callback"

    def wait(self, limit_s: float) -> dict[str, str]:
        """The query of the provider's answer to this sign-in; empty after the limit."""
        ends_s = time.monotonic() + limit_s
        while not self.answer and time.monotonic() < ends_s:
            self.handle_request()
        return self.answer


class _Answer(BaseHTTPRequestHandler):
    """One request of a browser."""

    #: A connection without a request holds up no other one for longer.
    timeout = 5.0
    server: _Listener

    def do_GET(self) -> None:
        """Take the answer if it is to this sign-in."""
        parts = urlsplit(self.path)
        fields = {name: values[0] for name, values in parse_qs(parts.query).items()}
        is_ours = parts.path == "/callback" and secrets.compare_digest(
            fields.get("state", "").encode(), self.server.state.encode()
        )
        if is_ours:
            self.server.answer = fields
        text = b"Signed in. This page can be closed.\n" if is_ours else b"not found\n"
        self.send_response(200 if is_ours else 404)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the URL has the code."""


def _open(page: str) -> None:
    typer.echo(f"open {page}")
    webbrowser.open(page)
