"""The REST API as a part of the manager's process: uvicorn, on a socket of our own."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvicorn

from mesh.api.auth import Access, RateLimits, is_loopback
from mesh.api.oidc import read_roles
from mesh.api.page_access import PageAccess
from mesh.api.routes import make_app
from mesh.api.routing import Json, error_type
from mesh.api.sign_in import make_sign_in
from mesh.api.users import Users
from mesh.errors import MeshError
from mesh.http.connections import BoundedServer, ConnectionLimits
from mesh.processes.signals import end
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mesh.api.oidc import Provider
    from mesh.jetstream.audit import Audit, AuditEntry
    from mesh.jetstream.directory import Directory
    from mesh.jetstream.secret_store import SecretStore
    from mesh.jetstream.sessions import UserSessions
    from mesh.manager.service import ManagerService
    from mesh.settings import ManagerSettings

log = logging.getLogger(__name__)

#: Interval of looks at the certificate's files, seconds; they are renewed days before they expire.
_CERTIFICATE_LOOK_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Listener:
    """A bound socket: the address is known and reserved before the API serves."""

    sockets: socket.socket
    host: str
    port: int

    @property
    def address(self) -> str:
        """``host:port``, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def close(self) -> None:
        """Give the address back."""
        self.sockets.close()


class _PublicScheme:
    """The scheme of browsers' requests where a proxy ends TLS: cookies are for TLS only."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        await self._app({**scope, "scheme": "https"}, receive, send)


class _Stopping:
    """Answers requests that a stop of the server cuts short, which otherwise get a bare 500."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        is_answered = False

        async def sending(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except asyncio.CancelledError:
            if is_answered or scope["type"] != "http":
                raise
            error = MeshError(
                "MESH-A503",
                "the manager stops",
                hint="Ask again in a moment, or another manager.",
            )
            values = {**error.to_dict(), "type": error_type(HTTPStatus.SERVICE_UNAVAILABLE)}
            answer = Json(values, HTTPStatus.SERVICE_UNAVAILABLE, headers={"Retry-After": "1"})
            await answer(scope, receive, send)


class ApiServer:
    """The API of one manager; ``run`` serves until ``stop`` or cancellation."""

    def __init__(
        self,
        service: ManagerService,
        settings: ManagerSettings,
        listener: Listener,
        front: Callable[[ASGIApp, PageAccess], ASGIApp] | None = None,
        *,
        directory: Directory | None = None,
        audit: Audit | None = None,
        secrets: SecretStore | None = None,
        provider: Provider | None = None,
        sessions: UserSessions | None = None,
    ) -> None:
        """Serve nothing yet.

        Args:
            service: the cluster.
            settings: of the manager.
            listener: the bound socket.
            front: adds pages to the API, for the same users.
            directory: users of all managers; None for those of the file alone.
            secrets: values that texts refer to.
            provider: of tokens that are not ours.
            sessions: of people who signed in at the pages.
            audit: takes an entry for each change and refusal.

        Raises:
            MeshError: MESH-A100 for an invalid users file, MESH-A102 without a user and without a
                directory, MESH-A104 for a certificate that can't be used.
        """
        self._listener = listener
        self._settings = settings
        access = Access(
            _users(settings, directory, provider),
            note=audit.note if audit is not None else _ignore,
            entries=audit.last if audit is not None else None,
            secrets=secrets,
            sessions=sessions,
            bearer=provider.identity if provider is not None else None,
            oidc=provider.settings if provider is not None else None,
            sign_in_by=make_sign_in(provider, settings.public_url),
            public_url=settings.public_url,
            limits=RateLimits(settings.requests_per_s, 2 * settings.requests_per_s),
        )
        app: ASGIApp = make_app(service, access)
        app = app if front is None else front(app, PageAccess(access))
        config = uvicorn.Config(
            _Stopping(_PublicScheme(app) if settings.public_url.startswith("https:") else app),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=settings.trusted_proxies or None,
            timeout_graceful_shutdown=1,
            ssl_certfile=settings.tls_cert or None,
            ssl_keyfile=settings.tls_key or None,
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise MeshError(
                "MESH-A104", "the API's certificate can't be used", detail=f"{error}."
            ) from error
        if config.ssl is not None:
            config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
        bounds = ConnectionLimits(
            settings.connections_max, settings.head_timeout_s, settings.body_timeout_s
        )
        self._server = BoundedServer(config, bounds)
        self._scheme = "https" if settings.tls_cert else "http"

    @property
    def url(self) -> str:
        """URL for clients."""
        return f"{self._scheme}://{self._listener.address}"

    async def run(self) -> None:
        """Serve."""
        log.info("api listens", extra=fields(url=self.url))
        context = self._server.config.ssl
        pair = (Path(self._settings.tls_cert), Path(self._settings.tls_key))
        following: list[asyncio.Task[None]] = []
        if context is not None:
            renewed = _follow_certificate(context, *pair, _CERTIFICATE_LOOK_S)
            following.append(asyncio.create_task(renewed))
        try:
            await self._server.serve([self._listener.sockets])
        except BaseException:
            # It has not been shut down, in which requests get an answer.
            await self._server.abandon()
            raise
        finally:
            self._listener.close()
            await end(following)

    def stop(self) -> None:
        """Have ``run`` return once the requests under way are answered, in a second at most."""
        self._server.should_exit = True


def _ignore(_: AuditEntry) -> None:
    """Take no entry."""


def _users(
    settings: ManagerSettings, directory: Directory | None, provider: Provider | None
) -> Users | None:
    """The users of the settings; None where access is anonymous."""
    if settings.anonymous:
        return None
    path = Path(settings.users_file) if settings.users_file else None
    users = Users(path, directory)
    if provider is not None:
        users.roles = read_roles(provider.settings.roles)
        users.is_provisioned_only = provider.settings.provisioned_only
    users.refresh()
    if directory is None and not len(users):
        raise MeshError(
            "MESH-A102",
            f'users file "{settings.users_file}" names no user' if path else "the API has no users",
            detail="No user and no password exists by default.",
            hint="Add one: mesh user add NAME --file users",
        )
    return users


async def offer_first_user(settings: ManagerSettings, directory: Directory) -> None:
    """Log a token that makes the first user, if there is none.

    It makes users and nothing else, and ends with the first of them.  Each manager logs one.
    """
    if settings.anonymous or settings.users_file:
        return
    token = await directory.offer_setup()
    if token is not None:
        log.warning(
            "no user yet; make one: MESH_TOKEN=.. mesh user add NAME --may admin",
            extra=fields(token=token),
        )


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
    if not local and not settings.tls_cert:
        raise MeshError(
            "MESH-A103",
            f"the API would take passwords in the clear on {settings.host}",
            hint="Set manager.tls_cert and manager.tls_key, or manager.host to 127.0.0.1.",
        )


def listen(settings: ManagerSettings) -> Listener:
    """Check the settings and bind the API's socket.

    Raises:
        MeshError: MESH-A102 to MESH-A104 as ``check_settings``; MESH-A105 when the address is taken
            or not this machine's.
    """
    check_settings(settings)
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # With the protocol said, asyncio sends an answer's body without waiting for an ack of its head:
    # 40 ms less on a connection that is kept.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((settings.host, settings.port))
        # The socket listens from now on: an early client waits instead of being refused.
        sock.listen(128)
    except OSError as error:
        sock.close()
        raise MeshError(
            "MESH-A105",
            f"the API can't listen on {settings.host}:{settings.port}",
            detail=f"{error.strerror or error}.",
            hint="manager.host and manager.port choose another; port 0 takes a free one.",
        ) from error
    sock.setblocking(False)
    return Listener(sock, settings.host, sock.getsockname()[1])


async def _follow_certificate(
    context: ssl.SSLContext, certificate: Path, key: Path, every_s: float
) -> None:
    """Have new connections use what the files contain, without end: a renewal needs no restart.

    A pair that does not fit together is one that is being written: the earlier one stays.
    """
    previous = _stamp(certificate, key)
    while True:
        await asyncio.sleep(every_s)
        stamp = _stamp(certificate, key)
        if stamp == previous:
            continue
        try:
            # A context that refuses a key has lost its own.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            log.warning("the API's certificate was not read again", extra=fields(error=error))
        else:
            log.info("the API has another certificate", extra=fields(path=certificate))
        previous = stamp


def _stamp(*paths: Path) -> tuple[tuple[int, int], ...]:
    """The state of the files; of one that is missing, nothing."""
    stamps = []
    for path in paths:
        try:
            stat = path.stat()
        except OSError:
            continue
        stamps.append((stat.st_mtime_ns, stat.st_ino))
    return tuple(stamps)
