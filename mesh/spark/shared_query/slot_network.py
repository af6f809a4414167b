"""Connections and messages between the session and its slots: a local socket, or TLS over TCP.

On a Spark cluster the slots run on other machines.  The session makes a certificate for each run of
the query and gives it with its key to the slots, in a function that only encrypted RPC of Spark
carries.  Both sides accept this certificate and no other: messages are pickled.

The messages are here too, and the rows that slots give to Spark.
"""

from __future__ import annotations

import pickle
import select
import socket
import ssl
import struct
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from mesh.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.spark.shared_query.members import Member, Outcome


#: Time limit for a handshake, and without progress of a transfer, seconds.
_TIMEOUT_S: Final = 15.0
_LENGTH: Final = struct.Struct(">Q")
_CHUNK: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of a slot."""

    pid: int
    #: File of its ``AtWork``; empty for a slot on another machine, which sends ``Working``.
    at_work: str


@dataclass(frozen=True, slots=True)
class Working:
    """A slot on another machine begins work for an instance, or is idle: None."""

    instance: str | None


@dataclass(frozen=True, slots=True)
class Admit:
    """Serve these parts of a member from now on; an outcome ``ADMITTED`` or ``FAILED`` follows."""

    member: Member
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remove:
    """Serve a member no longer; an outcome ``REMOVED`` follows, if it has not failed before."""

    name: str


#: Messages of the session, and of a slot.
Command = Admit | Remove
Report = Hello | Working | tuple["Outcome", ...]

#: Columns of the query's rows, which have the work of each part in a batch.
DONE: Final = {
    "instance": "string",
    "part": "string",
    "messages": "long",
    "events_in": "long",
    "events_out": "long",
    "errors": "long",
    "took_ms": "long",
}


class SessionLink(Protocol):
    """A connection that transfers pickled objects; one thread reads, any may send."""

    def send(self, obj: object) -> None:
        """Send an object; OSError if the other side is gone."""
        ...

    def recv(self) -> Any:
        """Wait for an object; EOFError or OSError if the other side is gone."""
        ...

    def poll(self) -> bool:
        """Whether ``recv`` would find something now."""
        ...

    def fileno(self) -> int:
        """The descriptor, readable when something comes."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


@dataclass(frozen=True, slots=True)
class Secret:
    """Certificate and key of one run, as PEM."""

    certificate: str
    key: str = field(repr=False)


class SlotListener(Protocol):
    """Socket on which the session accepts slots."""

    #: By which slots find it; a slot on this machine needs no secret.
    address: str
    secret: Secret | None

    def accept(self) -> SessionLink:
        """Wait for a connection."""
        ...

    def wake(self) -> None:
        """End a wait of ``accept`` by a connection."""
        ...

    def close(self) -> None:
        """Accept no more."""
        ...


class LocalListener:
    """A Unix domain socket in a private directory."""

    def __init__(self, path: Path) -> None:
        self._listener = Listener(str(path), family="AF_UNIX")
        self.address = str(path)
        self.secret: Secret | None = None

    def accept(self) -> SessionLink:
        """See ``SlotListener``."""
        return self._listener.accept()

    def wake(self) -> None:
        """See ``SlotListener``."""
        with suppress(OSError):
            Client(self.address, family="AF_UNIX").close()

    def close(self) -> None:
        """See ``SlotListener``."""
        self._listener.close()


@dataclass(frozen=True, slots=True)
class Address:
    """Address at which slots on other machines reach the session."""

    host: str
    #: 0 for a free one.
    port: int = 0
    #: The address that the session listens on; empty for ``host``.
    bind: str = ""


class TlsListener:
    """A TCP port."""

    def __init__(self, address: Address) -> None:
        # Only here: no other process of Spark needs its library.
        from mesh.http.certificate import self_signed

        with tempfile.TemporaryDirectory(prefix="mesh-slots-") as directory:
            paths = self_signed(Path(directory), SystemClock().wall_ms(), (address.host,))
            certificate, key = (path.read_text() for path in paths)
        secret = Secret(certificate, key)
        self.secret: Secret | None = secret
        self._context = _context(secret, is_server=True)
        family = socket.AF_INET6 if ":" in (address.bind or address.host) else socket.AF_INET
        self._socket = socket.create_server(
            (address.bind or address.host, address.port), family=family
        )
        self._port = self._socket.getsockname()[1]
        self._bound = address.bind or address.host
        self.address = f"{address.host}:{self._port}"

    def accept(self) -> SessionLink:
        """See ``SlotListener``; the handshake is the reader's."""
        return TlsLink(self._socket.accept()[0], self._context, is_server=True)

    def wake(self) -> None:
        """See ``SlotListener``."""
        with suppress(OSError):
            socket.create_connection((self._bound, self._port), _TIMEOUT_S).close()

    def close(self) -> None:
        """See ``SlotListener``."""
        self._socket.close()


def connect(address: str, secret: Secret | None) -> SessionLink:
    """A slot's connection to the session; OSError if it can't be made."""
    if secret is None:
        return Client(address, family="AF_UNIX")
    host, _, port = address.rpartition(":")
    context = _context(secret, is_server=False)
    plain = socket.create_connection((host, int(port)), _TIMEOUT_S)
    return TlsLink(plain, context, is_server=False)


def _context(secret: Secret, *, is_server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # The certificate itself is the identity.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=secret.certificate)
    with tempfile.TemporaryDirectory(prefix="mesh-slots-") as directory:
        path = Path(directory, "pair.pem")
        path.touch(mode=0o600)
        path.write_text(secret.certificate + secret.key)
        context.load_cert_chain(path)
    return context


class TlsLink:
    """A TLS connection; a host that vanishes counts as gone after ``_TIMEOUT_S``."""

    def __init__(self, plain: socket.socket, context: ssl.SSLContext, *, is_server: bool) -> None:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            ("TCP_KEEPIDLE", 5),
            ("TCP_KEEPINTVL", 2),
            ("TCP_KEEPCNT", 5),
            ("TCP_USER_TIMEOUT", int(_TIMEOUT_S * 1000)),
        ):
            if (number := getattr(socket, option, None)) is not None:
                plain.setsockopt(socket.IPPROTO_TCP, number, value)
        plain.setblocking(False)
        self._socket = context.wrap_socket(
            plain, server_side=is_server, do_handshake_on_connect=False
        )
        #: OpenSSL allows one call at a time; never held while waiting.
        self._calling = threading.Lock()
        #: Held while a message is sent.
        self._sending = threading.Lock()
        self._handshaking = threading.Lock()
        self._is_ready = False
        #: Received bytes that are not read.
        self._received = b""

    def send(self, obj: object) -> None:
        """See ``SessionLink``."""
        self._shake_hands()
        data = pickle.dumps(obj)
        left = memoryview(_LENGTH.pack(len(data)) + data)
        with self._sending:
            while left:
                left = left[self._retried(partial(self._socket.send, left[:_CHUNK])) :]

    def recv(self) -> Any:
        """See ``SessionLink``."""
        self._shake_hands()
        (size,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        return pickle.loads(self._exactly(size))

    def poll(self) -> bool:
        """See ``SessionLink``."""
        self._shake_hands()
        try:
            # A record of TLS itself has nothing for us.
            self._receive(0.0)
        except TimeoutError:
            return False
        return True

    def fileno(self) -> int:
        """See ``SessionLink``."""
        return self._socket.fileno()

    def close(self) -> None:
        """See ``SessionLink``."""
        self._socket.close()

    def _shake_hands(self) -> None:
        with self._handshaking:
            if not self._is_ready:
                self._retried(self._socket.do_handshake)
                self._is_ready = True

    def _exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            # An idle slot says nothing for hours; keepalive notices a host that is gone.
            self._receive(None)
            if not self._received:
                raise EOFError
            parts.append(self._received[:size])
            self._received = self._received[size:]
            size -= len(parts[-1])
        return b"".join(parts)

    def _receive(self, wait_s: float | None) -> None:
        """Have received bytes, or none at the end; TimeoutError without any in time."""
        if not self._received:
            self._received = self._retried(partial(self._socket.recv, _CHUNK), wait_s)

    def _retried(self, call: Callable[[], object], wait_s: float | None = _TIMEOUT_S) -> Any:
        """Repeat a call of OpenSSL until it needs to wait for nothing."""
        while True:
            try:
                with self._calling:
                    return call()
            except ssl.SSLWantReadError:
                ready = select.select([self._socket], [], [], wait_s)[0]
            except ssl.SSLWantWriteError:
                ready = select.select([], [self._socket], [], wait_s)[1]
            if not ready:
                raise TimeoutError("the other side does not answer")
