"""Authentication and authorisation of requests to the REST API.

Every request but those of ``OPEN_PATHS`` needs a user (HTTP Basic) with the permission for it
(``mesh.api.permissions``), unless access is anonymous.  That is possible on a loopback address
only, and then ``Host`` has to be a loopback name, so that no web page reaches the API by a name of
its own (DNS rebinding).  A request that a browser sends on behalf of another site's page is refused
in any case: browsers send ``text/plain`` across sites without a preflight.
"""

from __future__ import annotations

import ipaddress
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import orjson
from starlette.datastructures import Headers
from starlette.responses import Response

from mesh.api.permissions import ALL, Permission, needed
from mesh.api.users import Credentials, parse_basic
from mesh.errors import MeshError
from mesh.logs import fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from mesh.api.users import Users
    from mesh.settings import ManagerSettings

log = logging.getLogger(__name__)

#: Checks of passwords at one time; each takes 64 MB and a core for tens of milliseconds.
_CHECKS_MAX: Final = 2
#: Checks that wait or run, of all clients and of one address.  So no user waits for longer than a
#: second, and one address does not keep the others out.
_PENDING_MAX: Final = 16
_PENDING_OF_ADDRESS_MAX: Final = 8
#: Probes; they need no user and say nothing of apps and nodes.
OPEN_PATHS: Final = frozenset({"/health", "/health/live", "/health/ready"})
#: Length of a user's name in the log.
_NAME_MAX: Final = 64


_HEADERS: Final = {
    401: {"WWW-Authenticate": 'Basic realm="mesh", charset="UTF-8"'},
    429: {"Retry-After": "1"},
}


@dataclass(frozen=True, slots=True)
class Access:
    """Users of the API; with None, any client on this machine."""

    users: Users | None
    limiter: anyio.CapacityLimiter = field(
        default_factory=lambda: anyio.CapacityLimiter(_CHECKS_MAX)
    )
    #: Number of checks that wait or run, by address.
    pending: Counter[str] = field(default_factory=Counter)

    @property
    def is_open(self) -> bool:
        """Whether there are no users."""
        return self.users is None

    def reason_against(self, headers: Mapping[str, str]) -> str | None:
        """The reason to refuse a request by its headers; None if there is none."""
        origin = headers.get("origin")
        if origin is not None and _netloc(origin) != headers.get("host"):
            return f"request comes from a page of {origin}"
        host = _hostname(headers.get("host", ""))
        return None if self.users is not None or is_loopback(host) else _elsewhere(host)

    async def sign_in(self, user: str, password: str, address: str) -> bool | None:
        """Whether name and password match; None if too many checks wait already."""
        given = Credentials(user, password)
        if self.users is None or self.users.is_verified(given):
            return True
        return await self.check(self.users, given, address)

    def permissions(self, user: str) -> frozenset[Permission]:
        """The permissions of a user, as the file is now; none for an unknown one."""
        if self.users is None:
            return ALL
        self.users.refresh()
        return self.users.may(user)

    async def check(self, users: Users, given: Credentials, address: str) -> bool | None:
        """Whether name and password match; None if too many checks wait already."""
        if self.pending.total() >= _PENDING_MAX or self.pending[address] >= _PENDING_OF_ADDRESS_MAX:
            return None
        self.pending[address] += 1
        try:
            return await anyio.to_thread.run_sync(users.check, given, limiter=self.limiter)
        finally:
            self.pending[address] -= 1
            if not self.pending[address]:
                del self.pending[address]


def is_loopback(host: str) -> bool:
    """Whether ``host``, a name or an address, is this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_settings(settings: ManagerSettings) -> None:
    """Refuse settings that would leave the API open.

    Raises:
        MeshError: MESH-A102 without users and without ``anonymous``, or ``anonymous`` on an
            address that others reach; MESH-A103 for passwords in the clear on such an address;
            MESH-A104 for half a certificate.
    """
    local = is_loopback(settings.host)
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise MeshError("MESH-A104", "manager.tls_cert and manager.tls_key go together")
    if settings.anonymous and not local:
        raise MeshError(
            "MESH-A102",
            f"the API can't be anonymous on {settings.host}",
            detail="manager.anonymous is for addresses that only this machine reaches.",
            hint="Set manager.users_file, or manager.host to 127.0.0.1.",
        )
    if not settings.anonymous and not settings.users_file:
        raise MeshError(
            "MESH-A102",
            "the API has no users",
            detail="No user and no password exists by default.",
            hint="'mesh user add NAME --file users' makes a file for manager.users_file;"
            " on a loopback address manager.anonymous does without.",
        )
    if not local and not settings.tls_cert:
        raise MeshError(
            "MESH-A103",
            f"the API would take passwords in the clear on {settings.host}",
            hint="Set manager.tls_cert and manager.tls_key, or manager.host to 127.0.0.1.",
        )


class Guard:
    """The middleware that does so."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it with the refusal."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            refusal = await self._refusal(scope, Headers(scope=scope))
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        reason = self._access.reason_against(headers)
        if reason is not None:
            return _answer(403, reason)
        users = self._access.users
        if users is None:
            return None
        given = parse_basic(headers.get("authorization", ""))
        if given is None:
            return _answer(401, "user and password are missing")
        address = (scope.get("client") or ("",))[0]
        try:
            # Known users are answered without a turn, also while others try passwords.
            fits = users.is_verified(given) or await self._access.check(users, given, address)
        except MeshError as error:
            return _answer(500, error.message)
        if fits is None:
            return _answer(429, "too many passwords are checked")
        if not fits:
            log.warning("login failed", extra=fields(user=_logged(given.user), address=address))
            return _answer(401, "user and password don't fit")
        scope["mesh.user"] = given.user
        wanted = needed(scope["method"], scope["path"])
        may = scope["mesh.may"] = users.may(given.user)
        if wanted not in may:
            return _answer(403, f'user "{given.user}" lacks the permission "{wanted}"')
        return None


def _elsewhere(host: str) -> str:
    return f'host "{host}" is not this machine'


def _logged(name: str) -> str:
    """A name as it may be in a line of the log: short, and without line ends."""
    return name[:_NAME_MAX].encode("unicode_escape").decode()


def _netloc(origin: str) -> str | None:
    """Host and port of an origin; None for text that is no URL, like ``http://[``."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _answer(status: int, message: str) -> Response:
    headers = _HEADERS.get(status, {})
    body = orjson.dumps({"code": f"MESH-A{status}", "message": message}) + b"\n"
    return Response(body, status, headers, "application/json")
