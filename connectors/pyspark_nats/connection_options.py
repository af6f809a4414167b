"""How the connector reaches NATS: the options that the source and the sink share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark_nats.errors import OptionError
from pyspark_nats.options import OptionReader

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The names of these options.
NAMES: Final = ("servers", "user", "password", "token", "timeoutS", "clientName")


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Where NATS is and who we are there."""

    servers: tuple[str, ...]
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    #: How long to go without a server or a leader before giving up, seconds.
    timeout_s: float = 30.0
    client_name: str = "pyspark_nats"


def connection_options(given: Mapping[str, str]) -> ConnectionOptions:
    """The options of a connection by itself.

    Raises:
        OptionError: an unknown name, a missing or a malformed value.
    """
    return read_connection(OptionReader(given, NAMES, "connection"))


def read_connection(read: OptionReader) -> ConnectionOptions:
    """The connection's part of the options of a source or a sink."""
    servers = tuple(
        server if "://" in server else f"nats://{server}" for server in read.names("servers")
    )
    if not servers:
        raise OptionError('option "servers" is missing', hint='Give "nats://host:4222".')
    return ConnectionOptions(
        servers=servers,
        user=read.text("user"),
        password=read.text("password"),
        token=read.text("token"),
        timeout_s=read.number("timeoutS", 30.0),
        client_name=read.text("clientName", "pyspark_nats"),
    )
