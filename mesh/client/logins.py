"""Tokens of ``mesh login``: kept in a file of their owner, renewed at the identity provider.

The file ``logins.json`` is beside the context file, of mode 0600, with one entry for each server.
A token is sent to that server alone, and a refresh token to the provider that gave it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
import orjson

from mesh.client.context import LOGINS
from mesh.errors import MeshError
from mesh.files.private_files import write_private

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from mesh.model.values import JsonObject

#: A token that expires sooner is renewed before it is sent.
_MARGIN_S: Final = 30.0
_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Login:
    """The tokens for one server."""

    token_endpoint: str
    client_id: str
    access_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)
    #: Seconds since 1970.
    expires_s: float = 0.0
    revocation_endpoint: str = ""
    #: Repeated in each request for tokens (RFC 8707); empty for none.
    resource: str = ""


def find(path: Path, server: str) -> Login | None:
    """The login for a server; None if there is none.

    Raises:
        MeshError: MESH-U114 for a file that can't be read.
    """
    return _read(path).get(server)


def keep(path: Path, server: str, login: Login | None) -> None:
    """Store the login for a server, or remove it with None."""
    with _locked(path):
        _keep(path, server, login)


def renewed(path: Path, server: str, used: Login) -> Login:
    """A login with a new token, by this command or by another one meanwhile.

    Raises:
        MeshError: MESH-U114 if the provider refuses or can't be reached.
    """
    with _locked(path):
        current = _read(path).get(server)
        if current is not None and current.access_token != used.access_token:
            return current
        form = {"grant_type": "refresh_token", "refresh_token": used.refresh_token}
        login = login_of(ask_tokens(used, form), used)
        _keep(path, server, login)
        return login


def ask_tokens(of: Login, form: dict[str, str]) -> JsonObject:
    """The token endpoint's answer to a form; an error of RFC 6749 is the value of ``error``.

    Raises:
        MeshError: MESH-U114 if the provider does not answer.
    """
    values = {
        **form,
        "client_id": of.client_id,
        **({"resource": of.resource} if of.resource else {}),
    }
    try:
        answer = httpx.post(of.token_endpoint, data=values, timeout=_TIMEOUT_S)
        body: JsonObject = answer.json()
    except (httpx.HTTPError, ValueError) as error:
        raise failed(f"The identity provider does not answer: {type(error).__name__}.") from error
    if answer.is_error and "error" not in body:
        raise failed(f"The identity provider answers HTTP {answer.status_code}.")
    return body


def login_of(tokens: JsonObject, of: Login) -> Login:
    """The login of a provider's answer; MESH-U114 for an error."""
    if "error" in tokens or not isinstance(tokens.get("access_token"), str):
        reason = str(tokens.get("error", "no token"))[:80]
        raise failed(f"The identity provider answers {reason!r}.")
    lifetime = tokens.get("expires_in")
    expires_s = _now_s() + float(lifetime) if isinstance(lifetime, int | float) else 0.0
    return Login(
        of.token_endpoint,
        of.client_id,
        tokens["access_token"],
        str(tokens.get("refresh_token") or of.refresh_token),
        expires_s,
        of.revocation_endpoint,
        of.resource,
    )


def failed(why: str) -> MeshError:
    """The error of a sign-in that was not completed."""
    return MeshError(
        "MESH-U114", "the sign-in was not completed", detail=why, hint="Sign in again: mesh login"
    )


class LoginAuth(httpx.Auth):
    """Sends the token of a login, renewed when it has expired or was refused."""

    def __init__(self, path: Path, server: str, login: Login) -> None:
        self._path, self._server, self._login = path, server, login

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the token; once more with a new one after 401."""
        login = self._login
        soon_s = _now_s() + _MARGIN_S
        if login.refresh_token and login.expires_s and login.expires_s < soon_s:
            self._login = renewed(self._path, self._server, login)
        request.headers["Authorization"] = f"Bearer {self._login.access_token}"
        answer = yield request
        if answer.status_code == httpx.codes.UNAUTHORIZED and self._login.refresh_token:
            self._login = renewed(self._path, self._server, self._login)
            request.headers["Authorization"] = f"Bearer {self._login.access_token}"
            yield request


def _now_s() -> float:
    return time.time()  # noqa: TID251 - a command has no clock to be given


def _read(path: Path) -> dict[str, Login]:
    names = {one.name for one in fields(Login)}
    try:
        values = orjson.loads(path.read_bytes())
        return {
            server: Login(**{name: value for name, value in one.items() if name in names})
            for server, one in values.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise MeshError(
            "MESH-U114",
            f'file "{path}" can\'t be read',
            detail=f"{error}.",
            hint="Remove it, and sign in again: mesh login",
        ) from error


def _keep(path: Path, server: str, login: Login | None) -> None:
    logins = _read(path)
    logins.pop(server, None)
    if login is not None:
        logins[server] = login
    values = {name: asdict(one) for name, one in logins.items()}
    write_private(path, orjson.dumps(values, option=orjson.OPT_INDENT_2).decode() + "\n")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other commands from renewing at once: a refresh token often holds only once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path.parent / f".{LOGINS}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
