"""Choice of the server to connect to: configured ones first, then the cluster's."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pyspark_nats.errors import OptionError
from pyspark_nats.protocol.credentials import NOBODY, Credentials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_nats.json_types import JsonObject

_DEFAULT_PORT = 4222


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A server's address, with the credentials in its URL."""

    host: str
    port: int
    #: Whether the URL requires TLS.
    is_tls: bool = False
    #: From the URL's user part; anonymous without one.
    credentials: Credentials = field(default=NOBODY, repr=False)
    #: The name to verify in its certificate; "" for the host.
    tls_name: str = ""
    #: Whether it was discovered through another server.
    is_learned: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.is_tls else 'nats'}://{host}:{self.port}"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self.host, self.port


def parse(text: str, label: str) -> ServerAddress:
    """Parse the URL of a server such as ``nats://user:password@host:4222``; the scheme is optional.

    Raises:
        OptionError: it is not a URL, or its scheme is unsupported; the text omits the user part.
    """
    shown = text.rpartition("@")[2]
    try:
        url = urlsplit(text if "://" in text else f"nats://{text}")
        port = _DEFAULT_PORT if url.port is None else url.port
    except ValueError:
        url, port = urlsplit(""), 0
    if url.scheme in ("ws", "wss"):
        raise OptionError(
            f'{label} names "{shown}" as a WebSocket',
            hint="Give its client port: nats:// or tls://.",
        )
    if url.scheme not in ("nats", "tls") or not url.hostname or not port or url.path.strip("/"):
        raise OptionError(
            f'{label} names "{shown}", which is no server', hint='Give "nats://host:4222".'
        )
    return ServerAddress(
        url.hostname, port, url.scheme == "tls", _of_url(url.username, url.password)
    )


def _of_url(user: str | None, password: str | None) -> Credentials:
    # For every NATS client, a name without a password is a token.
    if user and password is None:
        return Credentials(token=unquote(user))
    return Credentials(unquote(user or ""), unquote(password or ""))


#: The server of each configured list that this process, or its parent before a fork, reached last.
_reached: dict[tuple[ServerAddress, ...], ServerAddress] = {}


class ServerPool:
    """The servers in the order of attempts, with the current one.

    It begins with the server that was reached last: the first may be lost, and not answer for long.
    """

    def __init__(self, servers: Sequence[ServerAddress]) -> None:
        self._configured = tuple(servers)
        self._learned: tuple[ServerAddress, ...] = ()
        self.current = _reached.get(self._configured, servers[0])

    def __len__(self) -> int:
        return len(self.servers)

    @property
    def servers(self) -> tuple[ServerAddress, ...]:
        """All servers, configured ones first."""
        return (*self._configured, *self._learned)

    def mark_connected(self) -> None:
        """Record that the current server is reachable: the next pool of these begins with it."""
        if self.current in self._configured:
            _reached[self._configured] = self.current

    def advance(self) -> None:
        """Move to the next server."""
        servers = self.servers
        at = servers.index(self.current) if self.current in servers else -1
        self.current = servers[(at + 1) % len(servers)]

    def learn(self, info: JsonObject) -> None:
        """Add the cluster's servers from the ``INFO`` of the current one."""
        addresses = info.get("connect_urls")
        if not addresses:
            return
        servers: dict[tuple[str, int], ServerAddress] = {}
        for address in addresses:
            server = self._server_of(str(address))
            if all(server.address != other.address for other in self._configured):
                servers.setdefault(server.address, server)
        self._learned = tuple(servers.values())

    def _server_of(self, address: str) -> ServerAddress:
        url = urlsplit(f"nats://{address.rpartition('://')[2]}")
        current = self.current
        host = url.hostname or current.host
        return replace(
            current,
            host=host,
            port=url.port or _DEFAULT_PORT,
            # Clusters report addresses, while certificates name hosts.
            tls_name=(current.tls_name or current.host) if _is_address(host) else "",
            is_learned=True,
        )


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()
