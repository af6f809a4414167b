"""Connections to NATS, with the settings that a mesh needs rather than the client's defaults.

Choice of the next server to reconnect to, and its timeout.

nats-py tries servers in any order, the one just lost included, and each with the timeout of a
first connection: a server whose machine is gone doesn't refuse, and costs 5 s more than a term.

Errors of the API for calls that NATS did not answer, or that another writer's change refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import ssl
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary

import orjson
from nats.aio.client import Client
from nats.aio.transport import TcpTransport
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.errors import APIError, BucketNotFoundError
from nats.js.errors import Error as JetStreamError

from mesh.errors import MeshError
from mesh.files.whole_files import is_full
from mesh.jetstream import kv
from mesh.jetstream.server import check_version
from mesh.processes.signals import end
from mesh.telemetry.logs import fields
from pyspark_nats.protocol.answers import FULL_CODES

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from nats.aio.client import Server
    from nats.js import JetStreamContext

    from mesh.model.values import JsonMapping, JsonObject
    from mesh.settings import NatsSettings


log = logging.getLogger(__name__)

T = TypeVar("T")


#: Errors of a call while the server is unreachable or has no leader.
UNREACHABLE = (NatsError, JetStreamError, TimeoutError, OSError)
#: Callbacks by connection: lost (False), restored (True).
_listeners: WeakKeyDictionary[Client, list[Callable[[bool], None]]] = WeakKeyDictionary()

#: Time between attempts to connect again, seconds.
RECONNECT_S: Final = 0.2
#: Timeout of closing a connection, which hangs if the server is gone.
CLOSE_S = 3.0

#: Time for which a server may be silent while there are others, seconds.
HURRY_S: Final = 1.0


@dataclass(eq=False, repr=False)
class ServerSelection:
    """Order of servers: the others in any order, then the one that was lost."""

    #: Host and port of the server that the connection was to.
    _left: Callable[[], str]
    #: Called with the timeout of the next server's responses, seconds.
    _wait: Callable[[float], None]
    _: KW_ONLY
    #: That timeout once all servers were tried, and the pause after each further attempt.
    timeout_s: float
    pause_s: float
    _order: list[str] = field(default_factory=list)
    _tried: int = 0

    def begin(self) -> None:
        """The connection is open again."""
        self._order, self._tried = [], 0

    def next(self, servers: Sequence[Server], _: JsonObject) -> tuple[Server | None, float]:
        """The server to try next and the pause before, as nats-py requests them."""
        by_address = {server.uri.netloc: server for server in servers}
        if not self._tried:
            left = self._left()
            others = [name for name in by_address if name != left]
            random.shuffle(others)
            self._order = [*others, left]
        order = [name for name in self._order if name in by_address]
        # A server may announce others meanwhile.
        order += [name for name in by_address if name not in order]
        is_round = self._tried >= len(order)
        is_last = len(order) == 1 or is_round
        self._wait(self.timeout_s if is_last else min(HURRY_S, self.timeout_s))
        chosen = by_address[order[self._tried % len(order)]]
        self._tried += 1
        return chosen, self.pause_s if is_round else 0.0


class _Transport(TcpTransport):
    """A socket of nats-py, whose stream knows that it is encrypted."""

    def __bool__(self) -> bool:
        """Whether nats-py uses this one: in place of one that is false it makes another."""
        return True

    async def connect_tls(self, *arguments: Any, **options: Any) -> None:
        """Start TLS on the socket.

        nats-py leaves this call out: asyncio warns at the end of each connection, then, and what is
        received is buffered without limit.
        """
        await super().connect_tls(*arguments, **options)
        assert self._io_writer is not None
        transport = self._io_writer.transport
        protocol = transport.get_protocol()
        # The server may have refused the client's certificate, and closed it.
        if protocol is not None:
            protocol.connection_made(transport)


class TlsClient(Client):
    """A client that sends no credentials without TLS, if TLS is demanded.

    nats-py starts TLS only if the server requires it, whatever the URL is.
    """

    demands_tls = False
    #: The JetStream domain, empty for that of the servers.
    js_domain = ""
    #: Whether servers that were not named may be tried: nats-py would try them without limit, as a
    #: refused one is announced again by the next.
    takes_announced = False

    def __init__(self) -> None:
        super().__init__()
        #: Set when the connection is closed and stays so, by whomever.
        self.closed = asyncio.Event()

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        await super()._close(status, do_cbs)
        if status == Client.CLOSED:
            self.closed.set()

    async def flush(self, timeout: int = 10) -> None:  # noqa: ASYNC109 - as nats-py's
        """Wait until the server has taken what was sent before.

        nats-py writes its PING ahead of the commands that its flusher has not written yet, so that
        the answer says nothing of them.
        """
        await self._flush_pending(force_flush=True)
        await super().flush(timeout)

    async def _process_err(self, err_msg: str) -> None:
        """Take an error that the server sends.

        nats-py closes for good at most of them, also at those that pass: a login that is refused
        during a change of accounts, or a message above a limit.  A server that wants the connection
        to end closes its socket, after which the client connects again.
        """
        error = NatsError("nats: " + err_msg.strip("'"))
        self._err = error
        await self._error_cb(error)

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        """The headers of a message; none where a publisher's octets are no headers.

        nats-py stops reading its socket at an error here, and takes itself for connected.
        """
        try:
            return await super()._process_headers(headers)
        except Exception as error:
            log.debug("headers of a message can't be read", extra=fields(error=error))
            return None

    async def _read_loop(self) -> None:
        """Read the socket; an error that nats-py does not expect ends the connection."""
        await super()._read_loop()
        task = asyncio.current_task()
        if self.is_connected and not (task is not None and task.cancelling()):
            await self._process_op_err(NatsError("what the server sent can't be read"))

    async def _attempt_reconnect(self) -> None:
        """Connect again without limit; an error that nats-py does not expect closes for good."""
        try:
            await super()._attempt_reconnect()
        except Exception as error:
            log.exception("nats connection can't be made again", extra=fields(error=error))
            self._err = error
            # It cancels the task that this runs in.
            self._closing = asyncio.create_task(self._close(Client.CLOSED))

    async def take_announced(self) -> None:
        """Add the servers that the first one has announced."""
        self.takes_announced = True
        await super()._process_info(self._server_info, initial_connection=True)

    def jetstream(self, **options: object) -> JetStreamContext:
        """The JetStream of the client's domain."""
        if self.js_domain:
            options = {"domain": self.js_domain, **options}
        return super().jetstream(**options)

    async def _process_info(self, info: JsonObject, initial_connection: bool = False) -> None:
        """Take what the server says of itself; the client's CONNECT follows."""
        if initial_connection and self.demands_tls and not info.get("tls_required"):
            if not info.get("tls_available"):
                raise NatsError("the server offers no TLS")
            # nats-py starts TLS then.
            info["tls_required"] = True
        if initial_connection and not self.takes_announced:
            info = {name: value for name, value in info.items() if name != "connect_urls"}
        await super()._process_info(info, initial_connection)

    async def _connect_to_server(self, server: Any) -> None:
        """Connect a socket, in place of one whose handshake failed: nats-py leaves that one open.

        A server that hangs or ends accepts many connections, and says nothing on any.
        """
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]  # of nats-py
        elif server.uri.scheme not in ("ws", "wss"):
            self._transport = _Transport()  # type: ignore[no-untyped-call]  # of nats-py
        await super()._connect_to_server(server)


async def close(client: Client) -> None:
    """Close a connection, with a limit to the wait."""
    # An attempt to reconnect that continues would open another socket.
    client.options["allow_reconnect"] = False
    reconnecting = client._reconnection_task
    try:
        with contextlib.suppress(*UNREACHABLE):
            async with asyncio.timeout(CLOSE_S):
                await end([reconnecting] if reconnecting is not None else [])
                await client.close()
    except asyncio.CancelledError:
        # Not of this task: an attempt to reconnect that was cancelled while it waited for the end
        # of the socket has cancelled the future of that end, for which nats-py waits again.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
    finally:
        # nats-py closes the socket last, so that a call that was cut short leaves it open; and a
        # socket that is only closed stays open until a server that hangs has read what was sent.
        writer = getattr(client._transport, "_io_writer", None)
        if writer is not None:
            # A transport that was closed, and has sent the rest since, has no loop to abort in.
            with contextlib.suppress(AttributeError):
                writer.transport.abort()


def listen(client: Client, changed: Callable[[bool], None]) -> None:
    """Call ``changed`` when a connection of ``connect`` is lost, and when it is restored."""
    _listeners.setdefault(client, []).append(changed)


async def while_open(client: Client, work: Coroutine[object, object, T]) -> T:
    """Do ``work``, which needs a connection of ``connect``, while that may come back.

    Raises:
        MeshError: MESH-N114 when the client is closed for good; the work is cancelled.
    """
    assert isinstance(client, TlsClient)
    doing, closing = asyncio.create_task(work), asyncio.create_task(client.closed.wait())
    try:
        await asyncio.wait((doing, closing), return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise MeshError(
            "MESH-N114",
            "the connection to NATS is closed for good",
            detail=f"{client.last_error or 'It was closed'}.",
            hint="The process ends, so that its service manager starts it again; the log has more.",
        )
    finally:
        await end((doing, closing))


def login(settings: NatsSettings) -> JsonObject:
    """Options of the client for its login and TLS; OSError for a file that can't be read."""
    options: dict[str, Any] = {}
    if settings.user:
        options |= {"user": settings.user, "password": settings.password}
    if settings.creds:
        options["user_credentials"] = settings.creds
    if settings.nkey_seed_file:
        # The client itself takes a file without a line end only.
        seed = Path(settings.nkey_seed_file).read_text(encoding="utf-8")
        options["nkeys_seed_str"] = seed.strip()
    if settings.inbox_prefix:
        options["inbox_prefix"] = settings.inbox_prefix
    if settings.tls_ca or settings.tls_cert or settings.tls_first:
        options["tls"] = ssl.create_default_context(cafile=settings.tls_ca or None)
    if settings.tls_cert:
        options["tls"].load_cert_chain(settings.tls_cert, settings.tls_key)
    if settings.tls_first:
        options["tls_handshake_first"] = True
    return options


def api_subject(client: Client, call: str) -> str:
    """The subject of a call of the JetStream API in the client's domain."""
    domain = getattr(client, "js_domain", "")
    return f"$JS.{domain}.API.{call}" if domain else f"$JS.API.{call}"


async def api_call(
    client: Client, call: str, query: JsonMapping | None = None, timeout_s: float = 5.0
) -> JsonObject:
    """The server's answer to a call of the JetStream API; a refusal is its ``error``."""
    data = b"" if query is None else orjson.dumps(query)
    reply = await client.request(api_subject(client, call), data, timeout=timeout_s)
    answer: JsonObject = orjson.loads(reply.data)
    return answer


def new_client(settings: NatsSettings) -> TlsClient:
    """A client that is not connected; a ``tls://`` URL or an option of TLS demands TLS."""
    client = TlsClient()
    urls = servers_of(settings)
    wants_tls = settings.tls_ca or settings.tls_cert or settings.tls_first
    client.demands_tls = bool(wants_tls) or any(url.startswith("tls://") for url in urls)
    client.js_domain = settings.js_domain
    return client


def servers_of(settings: NatsSettings) -> list[str]:
    """The URLs of the servers."""
    return [server.strip() for server in settings.url.split(",")]


def without_login(urls: str) -> str:
    """Comma-separated URLs without user and password, for messages."""
    return ",".join(re.sub(r"//.*@", "//", url) for url in urls.split(","))


def _unreachable(url: str, reason: object) -> MeshError:
    return MeshError(
        "MESH-N110",
        f'NATS at "{without_login(url)}" can\'t be reached',
        detail=f"{reason}.",
        hint="Is nats-server running there?  'mesh dev' starts one of its own.",
    )


async def connect(settings: NatsSettings, name: str, *, keeps_requests: bool = True) -> Client:
    """Connect, and stay connected: the client reconnects without limit.

    Args:
        settings: servers and credentials.
        name: shown by the server in its list of connections.
        keeps_requests: whether messages that are published while no server is connected are sent
            later, even if their callers have given up; otherwise they fail at once.

    Raises:
        MeshError: MESH-N110 when no server can be reached or it refuses us, MESH-N101 when it is
            too old.
    """
    problems: list[str] = []

    async def on_error(error: Exception) -> None:
        # A permission that is denied shows here only; the caller sees a timeout.
        problems.append(str(error) or type(error).__name__)
        log.debug("nats error", extra=fields(name=name, error=error))

    async def on_disconnected() -> None:
        log.info("nats connection lost", extra=fields(name=name))
        if not keeps_requests:
            client._pending, client._pending_data_size = [], 0
        tell(is_connected=False)

    async def on_reconnected() -> None:
        log.info("nats connection is back", extra=fields(name=name))
        turns.begin()
        tell(is_connected=True)

    def tell(*, is_connected: bool) -> None:
        for changed in _listeners.get(client, ()):
            changed(is_connected)

    client = new_client(settings)

    def left() -> str:
        server = client._current_server
        return server.uri.netloc if server is not None else ""

    def wait(seconds: float) -> None:
        client.options["connect_timeout"] = seconds

    timeout_s = settings.connect_timeout_s
    turns = ServerSelection(left, wait, timeout_s=timeout_s, pause_s=RECONNECT_S)
    options: dict[str, Any] = {
        "servers": servers_of(settings),
        "name": name,
        "connect_timeout": timeout_s,
        "allow_reconnect": True,
        # The defaults, 120 s and 60 attempts, would miss a dead link and give up for good.
        "ping_interval": settings.ping_interval_s,
        # A server of three that is cut off is to be left within a worker's term.
        "max_outstanding_pings": 2,
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": RECONNECT_S,
        "reconnect_to_server_handler": turns.next,
        "error_cb": on_error,
        "disconnected_cb": on_disconnected,
        "reconnected_cb": on_reconnected,
    }
    if not keeps_requests:
        options["pending_size"] = 0
    try:
        options |= login(settings)
    except OSError as error:
        raise _unreachable(settings.url, error) from error
    try:
        # Endless attempts are for later: the first connection fails within the time given.  After a
        # failed handshake nats-py may wait for its socket without limit.
        async with asyncio.timeout(2 * len(options["servers"]) * (timeout_s + RECONNECT_S)):
            await client.connect(**{**options, "max_reconnect_attempts": 1})
        await client.take_announced()
        _check_version(client, settings, name)
    except (OSError, NatsError, TimeoutError) as error:
        await close(client)
        raise _unreachable(settings.url, problems[-1] if problems else error) from error
    except (MeshError, asyncio.CancelledError):
        await close(client)
        raise
    client.options["max_reconnect_attempts"] = -1
    for server in client._server_pool:
        server.reconnects = 0
    return client


def _check_version(client: Client, settings: NatsSettings, name: str) -> None:
    version = client.connected_server_version
    if not check_version((version.major, version.minor), without_login(settings.url)):
        log.info("nats-server is newer than tested", extra=fields(name=name, version=version))


def connector_options(nats: NatsSettings) -> dict[str, str]:
    """Connection options of source and sink."""
    options = {
        "servers": nats.url,
        "user": nats.user,
        "password": nats.password,
        "credentials": nats.creds,
        "nkeySeedFile": nats.nkey_seed_file,
        "tlsCa": nats.tls_ca,
        "tlsCert": nats.tls_cert,
        "tlsKey": nats.tls_key,
        "tlsFirst": "true" if nats.tls_first else "",
        "inboxPrefix": nats.inbox_prefix,
        "jsDomain": nats.js_domain,
    }
    return {name: value for name, value in options.items() if value}


#: Errors that only calls of NATS raise; a request that they end is answered with MESH-A503.
NATS_ERRORS: Final = (NatsError, NatsTimeoutError)


#: Of a write, and of a stream that is made: limits of streams, and no server with room for it.
NO_ROOM: Final = FULL_CODES | {10035, 10005, 10120}
_MAKE_ROOM: Final = (
    "Free room ('nats stream ls', 'nats stream purge'), or raise max_file_store of the servers or"
    " the limits of the account."
)


def no_room(error: BaseException) -> str:
    """The refusal of a write for which JetStream has no room, in words; empty for other errors."""
    if isinstance(error, APIError) and error.err_code in NO_ROOM:
        return f"JetStream has no room: {error.description}"
    return ""


def answer_of(error: JsonMapping) -> str:
    """The refusal in an answer of JetStream as a sentence, with the remedy if there is no room."""
    said = f"The server says: {error.get('description')}."
    return f"{said} {_MAKE_ROOM}" if error.get("err_code") in NO_ROOM else said


def unreachable(error: Exception) -> MeshError:
    """The error for a call that NATS did not answer: MESH-A503; MESH-N127 without its bucket.

    One of a disk of this machine is MESH-A503, too, and says so.
    """
    if is_full(error):
        return MeshError(
            "MESH-A503",
            "this process has no space left on its disk",
            detail=f"{error}.",
            hint="Make room where the path is, or set TMPDIR to another disk; then try again.",
        )
    if isinstance(error, BucketNotFoundError):
        named = error.bucket if isinstance(error, kv.BucketMissingError) else "of the mesh"
        return MeshError(
            "MESH-N127",
            f"NATS has no bucket {named}",
            detail="It was deleted while the cluster ran.",
            hint="The managers make it again within seconds; try again then.",
        )
    if reason := no_room(error):
        return MeshError("MESH-A503", reason, hint=_MAKE_ROOM)
    return MeshError(
        "MESH-A503",
        "NATS did not answer",
        detail=f"{type(error).__name__}: {error}.",
        hint="Try again; 'nats server check jetstream' tells more.",
    )


@contextmanager
def refusals(on_conflict: MeshError | None = None) -> Iterator[None]:
    """Translate failures of NATS calls into errors of the API.

    Args:
        on_conflict: raised where another writer was first; without one the conflict passes.

    Raises:
        MeshError: ``on_conflict``, or MESH-A503 when NATS does not answer.
    """
    try:
        yield
    except kv.RevisionConflict as conflict:
        if on_conflict is None:
            raise
        raise on_conflict from conflict
    except UNREACHABLE as error:
        raise unreachable(error) from error
