"""Connection of a source or sink to NATS servers of others, by its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from nats.errors import Error as NatsError

from mesh.connect.access import check_egress
from mesh.connect.contract import Options, UnavailableError
from mesh.jetstream.connection import TlsClient, close
from mesh.receiver.tls import client_context

if TYPE_CHECKING:
    from nats.aio.client import Client

    from mesh.connect.contract import Context

_CONNECT_S: Final = 5
_DEFAULT: Final = "nats://localhost:4222"
#: Parameters of the client by option.
_LOGIN: Final = {
    "username": "user", "password": "password", "token": "token", "creds": "user_credentials",
    "nkey": "nkeys_seed",
}  # fmt: skip


async def connect(context: Context, role: str) -> Client:
    """Connect to the servers of the options; the host connects again after a loss.

    Raises:
        UnavailableError: no server can be reached, or it refuses the login.
        MeshError: MESH-C131 for files of TLS that can't be read, MESH-C132 for a server that is not
            open to connectors here.
    """
    options: Options = context.options
    servers = [one.strip() for one in str(options.get("server.urls") or _DEFAULT).split(",")]
    login = {name: options.get(option) for option, name in _LOGIN.items()}
    for at, server in enumerate(servers):
        parts = urlsplit(server if "://" in server else f"nats://{server}")
        check_egress(context.access, parts.hostname or "", parts.port or 4222)
        if parts.username:
            # The client takes a login of a URL as it is written, percent-encoded or not.
            user = "token" if parts.password is None else "user"
            login[user] = login[user] or unquote(parts.username)
            login["password"] = login["password"] or unquote(parts.password or "")
            servers[at] = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    problems: list[str] = []

    async def note(error: Exception) -> None:
        """Keep what the server says: the failed call says less."""
        problems.append(str(error) or type(error).__name__)

    client = TlsClient()
    tls = client_context(options)
    client.demands_tls = tls is not None or any(one.startswith("tls://") for one in servers)
    arguments: dict[str, Any] = {name: str(value) for name, value in login.items() if value}
    # Also of the first connection, which is otherwise tried for two minutes.
    arguments |= {"max_reconnect_attempts": 1, "reconnect_time_wait": 0.1}
    if tls is not None:
        arguments["tls"] = tls
    try:
        await client.connect(
            servers,
            name=f"mesh {role} {context.instance}",
            connect_timeout=_CONNECT_S,
            allow_reconnect=False,
            error_cb=note,
            **arguments,
        )
    except (NatsError, OSError, TimeoutError) as error:
        await close(client)
        reason = problems[-1] if problems else f"{error}" or type(error).__name__
        where = ", ".join(servers)
        raise UnavailableError(f"NATS at {where} can't be reached: {reason}") from error
    return client
