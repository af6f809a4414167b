"""Connections to RabbitMQ, and the exchanges that both directions declare."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeVar

from mesh.connect.contract import Options, UnavailableError
from mesh.connect.extras import library
from mesh.receiver.access import check_url
from mesh.receiver.tls import client_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aio_pika.abc import AbstractChannel, AbstractConnection

    from mesh.connect.contract import Context

T = TypeVar("T")
#: Timeout of calls, seconds.
CALL_S: Final = 10.0


async def connect(context: Context) -> AbstractConnection:
    """A connection that is not made again by itself: the host does that.

    Raises:
        MeshError: MESH-C132 for a server that is not open to connectors.
        UnavailableError: the server can't be reached, or refuses the login.
    """
    pika = library("aio_pika", "rabbitmq")
    options = context.options
    uri = str(options["uri"])
    if options.get("tls.enabled"):
        uri = re.sub(r"\Aamqp:", "amqps:", uri)
    check_url(context.access, uri, 5671 if uri.startswith("amqps") else 5672)
    secure = client_context(options)

    async def call() -> AbstractConnection:
        connection: AbstractConnection = await pika.connect(
            uri, timeout=CALL_S, ssl_context=secure,
            client_properties={"connection_name": f"mesh {context.instance}"},
        )  # fmt: skip
        return connection

    return await guarded(call)


async def guarded(call: Callable[[], Awaitable[T]]) -> T:
    """The result of a call; failures of the client and the network are ``UnavailableError``."""
    pika = library("aio_pika", "rabbitmq")
    try:
        return await call()
    except (pika.exceptions.AMQPError, OSError, TimeoutError) as error:
        raise UnavailableError(str(error) or type(error).__name__) from error


async def exists(
    connection: AbstractConnection, look: Callable[[AbstractChannel], Awaitable[object]]
) -> bool:
    """Whether something is there; a server ends the channel of a question for what is not."""
    pika = library("aio_pika", "rabbitmq")
    async with connection.channel() as channel:
        try:
            await look(channel)
        except pika.exceptions.ChannelNotFoundEntity:
            return False
    return True


async def declare_exchange(connection: AbstractConnection, options: Options) -> None:
    """Declare the exchange of the options, unless there is one, of whatever properties."""
    name = str(options["exchange.name"])
    kind = str(options.get("exchange.type") or "direct").lower()

    async def look(channel: AbstractChannel) -> None:
        await channel.declare_exchange(name, kind, passive=True, timeout=CALL_S)

    if name.startswith("amq.") or await exists(connection, look):
        return
    async with connection.channel() as channel:
        await channel.declare_exchange(
            name,
            kind,
            durable=_is_on(options.get("exchange.durable.enabled")),
            auto_delete=_is_on(options.get("exchange.autodelete.enabled")),
            timeout=CALL_S,
        )


def _is_on(value: object) -> bool:
    return str(value).lower() == "true"
