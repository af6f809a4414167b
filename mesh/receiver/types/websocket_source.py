"""Source ``websocket``: messages of a server."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, Final

from mesh.connect.contract import UnavailableError
from mesh.connect.extras import library
from mesh.processes.signals import end
from mesh.receiver.access import check_url, words
from mesh.receiver.tls import client_context
from mesh.receiver.types.arrivals import PushedPayloads

if TYPE_CHECKING:
    from mesh.connect.contract import Batch, Context
    from mesh.model.values import JsonMapping

_CALL_S: Final = 10.0
#: Messages that wait for the broker; the server has to wait after them.
_WAITING: Final = 10_000


def _connect(client: Any) -> Any:
    """The library's ``connect``, which follows no redirect: it could lead past receiver.egress."""

    class Direct(client.connect):  # type: ignore[misc]  # a class that is known at run time
        def process_redirect(self, exc: Exception) -> Exception:
            return exc

    return Direct


async def connected(context: Context) -> Any:
    """A connection to the server of the option ``url``.

    Raises:
        UnavailableError: it does not answer, or refuses.
    """
    client = library("websockets.asyncio.client", "websocket")
    errors = library("websockets.exceptions", "websocket")
    options = context.options
    url = str(options["url"])
    check_url(context.access, url, 443 if url.startswith("wss:") else 80)
    secure = None
    if url.startswith("wss:"):
        secure = client_context(options) or ssl.create_default_context()
    try:
        return await _connect(client)(
            url,
            ssl=secure,
            subprotocols=words(options.get("sub.protocol")) or None,
            additional_headers=options.get("headers") or None,
            open_timeout=_CALL_S,
            close_timeout=1,
            # The environment of the worker is not the app's.
            proxy=None,
        )
    except (errors.WebSocketException, OSError, TimeoutError) as error:
        raise UnavailableError(str(error) or type(error).__name__) from error


class WebSocketSource(PushedPayloads):
    """See ``mesh.connect.contract.Source``."""

    def __init__(self) -> None:
        self._connection: Any = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self, context: Context, position: JsonMapping | None) -> None:
        """Connect."""
        self.begin()
        self._room = asyncio.Semaphore(_WAITING)
        self._connection = await connected(context)
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            while True:
                message = await self._connection.recv()
                await self._room.acquire()
                await self.put(message.encode() if isinstance(message, str) else message)
        # Whatever ended it, the next ``read`` has to report it.
        except Exception as error:
            self._arrived.fail(str(error) or type(error).__name__)

    async def read(self) -> Batch | None:
        """The messages that have arrived."""
        batch = await super().read()
        for _ in batch.payloads if batch is not None else ():
            self._room.release()
        return batch

    async def close(self) -> None:
        """Disconnect."""
        reading, self._reading = self._reading, None
        await end([reading] if reading is not None else [])
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
