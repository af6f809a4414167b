"""Authentication and authorisation of requests to the REST API, and limits of their rates.

Every request but those of ``OPEN_PATHS`` needs a user with the permission for it, unless access is
anonymous.  The table of operations has the permission of each route (``ROUTES``); a route that is
not there is reached by no user: the guard answers 404 before it, and a test names it.  A user is
recognised by name and password (HTTP Basic), or by a token (Bearer).  Each refusal, change and
reading of payloads is audited.

Anonymous access is possible on a loopback address only, and then ``Host`` has to be a loopback
name, so that no web page reaches the API by a name of its own (DNS rebinding).  A request that a
browser sends on behalf of another site's page is refused in any case: browsers send ``text/plain``
across sites without a preflight.
"""

from __future__ import annotations

import ipaddress
import logging
import re
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from starlette.datastructures import Headers
from starlette.responses import Response

from mesh.api.routing import refusal_of
from mesh.api.users import LoginCredentials, parse_basic
from mesh.clock import SystemClock
from mesh.errors import MeshError
from mesh.jetstream.audit import AuditEntry
from mesh.jetstream.directory import PREFIX
from mesh.model.access import ANYONE, Grant, Identity, Permission, current, lacking, within
from mesh.model.access import needed as permission_needed
from mesh.model.operation import ANY_USER, About, Public
from mesh.model.operations import OPERATIONS
from mesh.model.values import JsonObject
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mesh.api.sign_in import SignIn
    from mesh.api.users import Users
    from mesh.clock import Clock
    from mesh.jetstream.audit import AuditFilter
    from mesh.jetstream.secret_store import SecretStore
    from mesh.jetstream.sessions import UserSessions
    from mesh.settings import OidcSettings


log = logging.getLogger(__name__)

#: Checks of passwords at one time; each takes 64 MB and a core for tens of milliseconds.
_CHECKS_MAX: Final = 2
#: Checks that wait or run, of all clients and of one address.  So no user waits for longer than a
#: second, and one address does not keep the others out.
_PENDING_MAX: Final = 16
_PENDING_OF_ADDRESS_MAX: Final = 8
#: Failed checks of one user from one address, and from all, and those a second after them.
_FAILURES: Final = (10.0, 50.0)
_FAILURES_PER_S: Final = (0.1, 0.2)
#: Kind of the sessions of ``POST /login/{product}``, and the prefix of their tokens.
LOGIN: Final = "login"
LOGIN_PREFIX: Final = f"{PREFIX}{LOGIN}_"
#: Length of a user's name, and of a path, in the log and in the audit.
NAME_MAX: Final = 64
PATH_MAX: Final = 200
#: Paths for the token of the first user.
_SETUP_ROUTES: Final = frozenset({"POST /users", "GET /me"})
#: Headers of each answer: nothing of it is stored, framed or guessed at.
SECURITY_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
_HSTS: Final = (b"strict-transport-security", b"max-age=31536000")

_BY_ROUTE: Final = {key: one for one in OPERATIONS for key in one.keys}
#: Probes, and the identity provider to sign in at; they need no user and say nothing of apps and
#: nodes.
OPEN_PATHS: Final = frozenset(
    path for one in OPERATIONS if one.permission is Public.OPEN for path in one.paths
)
#: The route that makes a user known: it is reached without one.
(SIGN_IN,) = (key for key, one in _BY_ROUTE.items() if one.permission is Public.SIGN_IN)
#: Permissions of all routes that need a user, and of the sign-in.
ROUTES: Final[dict[str, Permission | None]] = {
    key: ANY_USER if isinstance(one.permission, Public) else one.permission
    for key, one in _BY_ROUTE.items()
    if one.permission is not Public.OPEN
}
#: Their paths as patterns; those of words come before those with parameters.
_PATTERNS: Final = [
    (key, re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]*)", re.escape(key.partition(" ")[2]))))
    for key in sorted(ROUTES, key=lambda key: key.count("{"))
]

#: Names of which the newest are kept: an attacker with many addresses takes no memory.
_NAMES_MAX: Final = 4096


@dataclass(slots=True)
class RateLimits:
    """Requests of each name: ``rate`` a second, and ``burst`` at once; a rate of 0 is no limit."""

    rate: float = 0.0
    burst: float = 0.0
    #: By name: what is left, and when that was.
    _left: dict[str, tuple[float, float]] = field(default_factory=dict, repr=False)

    def has(self, name: str, now_s: float) -> bool:
        """Whether a name might ask once more now; takes nothing."""
        left, then_s = self._left.get(name, (self.burst, now_s))
        return not self.rate or min(self.burst, left + (now_s - then_s) * self.rate) >= 1.0

    def admit(self, name: str, now_s: float) -> bool:
        """Whether a name may ask once more now."""
        if not self.rate:
            return True
        left, then_s = self._left.pop(name, (self.burst, now_s))
        left = min(self.burst, left + (now_s - then_s) * self.rate)
        if len(self._left) >= _NAMES_MAX:
            # The oldest: a name is put at the end each time it asks.
            del self._left[next(iter(self._left))]
        self._left[name] = (left - 1.0 if left >= 1.0 else left), now_s
        return left >= 1.0


@dataclass(frozen=True, slots=True)
class Needed:
    """Permission that a request needs, and the app that it is about."""

    route: str
    permission: Permission | None
    #: The app of the path.
    app: str | None = None
    #: Whether the handler checks the app, and the permission for any app is enough before it.
    is_any_app: bool = False


def needed(method: str, path: str) -> Needed | None:
    """Permission and app of a request; None if no route of the table has this method and path."""
    verb = "GET" if method == "HEAD" else method
    for route, pattern in _PATTERNS:
        if route.startswith(f"{verb} ") and (fits := pattern.fullmatch(path)):
            is_any_app = _BY_ROUTE[route].about is not About.PATH
            return Needed(route, ROUTES[route], fits.groupdict().get("app"), is_any_app)
    return None


def has_route(path: str) -> bool:
    """Whether the table has the path with any method."""
    return any(pattern.fullmatch(path) for _, pattern in _PATTERNS)


@dataclass(frozen=True, slots=True)
class Access:
    """Users of the API; with None, any client on this machine."""

    users: Users | None
    limiter: anyio.CapacityLimiter = field(
        default_factory=lambda: anyio.CapacityLimiter(_CHECKS_MAX)
    )
    #: Number of checks that wait or run, by address.
    pending: Counter[str] = field(default_factory=Counter)
    #: Takes entries of the audit.
    note: Callable[[AuditEntry], None] = lambda _: None
    #: The last entries; None where there is no audit.
    entries: Callable[[int, AuditFilter], Awaitable[list[JsonObject]]] | None = None
    #: Values that texts refer to; None where there are none.
    secrets: SecretStore | None = None
    #: Sessions at the pages; None where there are no pages.
    sessions: UserSessions | None = None
    #: The user of a bearer token that is no token of ours; None without a provider.
    bearer: Callable[[str], Awaitable[Identity]] | None = None
    #: The provider's settings; None without a provider.
    oidc: OidcSettings | None = None
    #: The sign-in to the pages by the provider; None without one.
    sign_in_by: SignIn | None = None
    #: The URL that browsers know this manager by; empty for its own.
    public_url: str = ""
    clock: Clock = field(default_factory=SystemClock)
    limits: RateLimits = field(default_factory=RateLimits)
    #: Failed checks of each user and address, and of each user.
    failures: tuple[RateLimits, ...] = field(
        default_factory=lambda: tuple(map(RateLimits, _FAILURES_PER_S, _FAILURES))
    )
    #: Lines of the log about failed sign-ins: one of an address each minute.
    warnings: RateLimits = field(default_factory=lambda: RateLimits(1 / 60, 1.0))

    def warn(self, message: str, address: str, **more: object) -> None:
        """Log a failed sign-in, unless one of the address was logged in the last minute."""
        if self.warnings.admit(address, self.clock.monotonic_s()):
            log.warning(message, extra=fields(**more, address=address))

    @property
    def is_open(self) -> bool:
        """Whether there are no users."""
        return self.users is None

    def reason_against(self, headers: Mapping[str, str]) -> str | None:
        """The reason to refuse a request by its headers; None if there is none."""
        origin = headers.get("origin")
        hosts = {headers.get("host"), netloc(self.public_url)} - {None, ""}
        if origin is not None and netloc(origin) not in hosts:
            return f"request comes from a page of {origin}"
        host = hostname(headers.get("host", ""))
        if self.users is not None or is_loopback(host):
            return None
        return f'host "{host}" is not this machine'

    async def sign_in(self, user: str, password: str, address: str) -> bool | None:
        """Whether name and password match; None if too many checks wait already."""
        credentials = LoginCredentials(user, password)
        if self.users is None or self.users.is_verified(credentials):
            return True
        return await self.check(self.users, credentials, address)

    def by_token(self, token: str) -> Identity | None:
        """The user of an API token, with what is left of the owner's rights; None if invalid."""
        directory = self.users.directory if self.users is not None else None
        if directory is None or self.users is None:
            return None
        if directory.is_setup(token):
            return Identity("setup", (Grant(frozenset({Permission.ADMIN})),), "setup")
        api_token = directory.token(token)
        if api_token is None or not api_token.is_valid(self.clock.wall_ms()):
            return None
        self.users.refresh()
        if not self.users.may_sign_in(api_token.user):
            return None
        return Identity(
            api_token.user, within(self.users.grants(api_token.user), api_token.grant), "token"
        )

    async def by_login(self, token: str) -> Identity | None:
        """The user of a login's token; None if it has ended.

        Raises:
            MeshError: MESH-A503 while NATS can't be reached.
        """
        if not token.startswith(LOGIN_PREFIX) or self.sessions is None or self.users is None:
            return None
        session = await self.sessions.find(token.removeprefix(LOGIN_PREFIX))
        self.users.refresh()
        if (
            session is None
            or session.how != LOGIN
            or not self.users.is_of_now(session.user, session.mark)
        ):
            return None
        return Identity(session.user, self.users.grants(session.user), LOGIN)

    async def check(self, users: Users, credentials: LoginCredentials, address: str) -> bool | None:
        """Whether name and password match; None if too many checks wait, or have failed lately."""
        if self.pending.total() >= _PENDING_MAX or self.pending[address] >= _PENDING_OF_ADDRESS_MAX:
            return None
        keys = f"{credentials.user[:NAME_MAX]} {address}", credentials.user[:NAME_MAX]
        pairs = tuple(zip(self.failures, keys, strict=True))
        if not all(limit.has(key, self.clock.monotonic_s()) for limit, key in pairs):
            return None
        self.pending[address] += 1
        try:
            fits = await anyio.to_thread.run_sync(users.check, credentials, limiter=self.limiter)
        finally:
            self.pending[address] -= 1
            if not self.pending[address]:
                del self.pending[address]
        if not fits:
            for limit, key in pairs:
                limit.admit(key, self.clock.monotonic_s())
        return fits


class ApiGuard:
    """The middleware that does so."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it with the refusal."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _ApiRequest(scope, needed(scope["method"], scope["path"]))
        answer = self._answering(request, send)
        if scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, answer)
            return
        refusal = await self._refusal(request, Headers(scope=scope))
        if refusal is not None:
            await refusal(scope, receive, answer)
            return
        token = current.set(request.identity)
        needed_token = permission_needed.set(request.needed.permission if request.needed else None)
        try:
            await self._app(scope, receive, answer)
        except Exception:
            # The outermost layer answers, beyond this one.
            self._note(request, HTTPStatus.INTERNAL_SERVER_ERROR)
            raise
        finally:
            permission_needed.reset(needed_token)
            current.reset(token)

    def _note(self, request: _ApiRequest, status: int) -> None:
        """Audit a request, once, if its kind is audited."""
        if not request.is_answered and request.is_audited(status):
            self._access.note(request.entry(status, self._access.clock.wall_ms()))
        request.is_answered = True

    def _answering(self, request: _ApiRequest, send: Send) -> Send:
        """Adds headers to the answer, and audits it once its status is known."""
        is_secure = request.scope.get("scheme") == "https"
        more = [*SECURITY_HEADERS, *((_HSTS,) if is_secure else ())]

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message.get("headers", ())}
                added = [one for one in more if one[0] not in present]
                message["headers"] = [*message.get("headers", ()), *added]
                self._note(request, message["status"])
            await send(message)

        return answer

    async def _refusal(self, request: _ApiRequest, headers: Headers) -> Response | None:
        access = self._access
        reason = access.reason_against(headers)
        if reason is not None:
            return refusal_of(403, reason)
        if not access.limits.admit(request.source, access.clock.monotonic_s()):
            return refusal_of(429, "too many requests from this address")
        if request.needed is not None and request.needed.route == SIGN_IN:
            return None
        try:
            refusal = await self._recognise(request, headers)
        except MeshError as error:
            return refusal_of(503 if error.code == "MESH-A503" else 500, error.message)
        if refusal is not None:
            return refusal
        identity = request.identity
        if identity.user and not access.limits.admit(
            f"user {identity.user}", access.clock.monotonic_s()
        ):
            return refusal_of(429, "too many requests of this user")
        return _permitted(request)

    async def _recognise(self, request: _ApiRequest, headers: Headers) -> Response | None:
        """Find the user of a request, or the refusal."""
        access = self._access
        users = access.users
        if users is None:
            request.identity = ANYONE
            return None
        authorization = headers.get("authorization", "")
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer":
            return await self._recognise_bearer(request, token.strip())
        credentials = parse_basic(authorization)
        if credentials is None:
            return refusal_of(401, "user and password are missing")
        # Known users are answered without a turn, also while others try passwords.
        fits = users.is_verified(credentials) or await access.check(
            users, credentials, request.source
        )
        if fits is None:
            return refusal_of(429, "too many passwords are checked")
        if not fits:
            request.claimed = logged(credentials.user)
            access.warn("login failed", request.source, user=logged(credentials.user))
            return refusal_of(401, "user and password don't fit")
        request.identity = Identity(credentials.user, users.grants(credentials.user))
        request.scope["mesh.user"] = credentials.user
        return None

    async def _recognise_bearer(self, request: _ApiRequest, token: str) -> Response | None:
        access = self._access
        assert access.users is not None
        identity = await access.by_login(token) or access.by_token(token)
        if identity is None and access.bearer is not None and not token.startswith(PREFIX):
            try:
                bearer = await access.bearer(token)
                access.users.refresh()
                identity = access.users.with_provisioned(bearer)
            except MeshError as error:
                access.warn("token refused", request.source, reason=error)
        if identity is None:
            return refusal_of(401, "the token is not valid")
        request.identity = identity
        request.scope["mesh.user"] = identity.user
        return None


@dataclass
class _ApiRequest:
    """A request, as far as it is understood."""

    scope: Scope
    needed: Needed | None
    identity: Identity = field(default_factory=lambda: Identity("", (), ""))
    #: The name that an unknown user gave.
    claimed: str = ""
    is_answered: bool = False

    @property
    def source(self) -> str:
        """The address of the client."""
        return str((self.scope.get("client") or ("",))[0])

    def is_audited(self, status: int) -> bool:
        """Whether the answer is noted: changes, payloads, and what was refused."""
        if self.scope["path"] in OPEN_PATHS:
            return False
        if status in (401, 403, 429) or self.scope["method"] not in ("GET", "HEAD"):
            return True
        return self.needed is not None and self.needed.permission is Permission.DATA_READ

    def entry(self, status: int, now_ms: int) -> AuditEntry:
        """The entry of the audit."""
        permission = self.needed.permission if self.needed is not None else None
        return AuditEntry(
            now_ms,
            self.identity.user or self.claimed or logged(self.scope.get("mesh.claimed", "")),
            self.identity.how,
            self.source,
            self.scope["method"],
            logged(self.scope["path"], PATH_MAX),
            status,
            logged(self.needed.app or "", PATH_MAX) if self.needed is not None else "",
            permission or "",
        )


def _permitted(request: _ApiRequest) -> Response | None:
    """The refusal of a request whose user lacks the permission; None if it has it."""
    identity, need = request.identity, request.needed
    if need is None:
        # A known path with another method gets the router's answer, which says so.
        return None if has_route(request.scope["path"]) else refusal_of(404, "not found")
    if identity.how == "setup" and need.route not in _SETUP_ROUTES:
        return refusal_of(403, "the token for the first user makes a user, and nothing else")
    permission = need.permission
    if permission is ANY_USER:
        return None
    if need.is_any_app and identity.may_anywhere(permission):
        return None
    if identity.may(permission, need.app):
        return None
    return refusal_of(403, lacking(identity.user, permission, need.app).message)


def logged(text: str, most: int = NAME_MAX) -> str:
    """A text of a client as it may be in a line of the log: short, and without line ends."""
    return text[:most].encode("unicode_escape").decode()[:most]


def is_loopback(host: str) -> bool:
    """Whether ``host``, a name or an address, is this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def netloc(origin: str) -> str | None:
    """Host and port of an origin; None for text that is no URL, like ``http://[``."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def hostname(host: str) -> str:
    """The name or address of a ``Host`` header; empty for text that is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
