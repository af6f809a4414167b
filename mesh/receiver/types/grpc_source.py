"""Sources ``grpc`` and ``grpc-service``: messages of calls; the answer follows the broker's ack."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mesh.connect.access import check_listen
from mesh.connect.contract import Options, RefusedPayloadError, UnavailableError
from mesh.connect.grpc_specs import CONSUME, PROCESS
from mesh.errors import MeshError
from mesh.receiver.grpc_server import SERVERS, GrpcLimits, modules
from mesh.receiver.tls import pems_of, server_context
from mesh.receiver.types.calls import WaitingRequests
from mesh.receiver.types.grpc_events import KEY, Envelope, checked, method, opened, properties_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    import grpc.aio

    from mesh.connect.contract import Context
    from mesh.receiver.tls import Pems

    Accept = Callable[[bytes, Mapping[str, str], str | None], Awaitable[int]]

#: Events of one call that are not stored; the next message waits.
_WINDOW: Final = 64
#: Name of gRPC's own answer to "when again".
_PUSHBACK: Final = "grpc-retry-pushback-ms"


class _Message(NamedTuple):
    """A message of a call, as a payload."""

    payload: bytes
    properties: dict[str, str]
    key: str | None


class GrpcSource:
    """See ``mesh.connect.contract.Server``."""

    _usual = CONSUME

    def __init__(self) -> None:
        self.endpoint = ""
        self._at: tuple[str, int, str] | None = None
        self._envelope: Envelope | None = None

    async def open(self, context: Context, accept: Accept) -> None:
        """Bind the address, and answer calls."""
        options = context.options
        place, self._envelope = method(options, "receiver.url", self._usual)
        check_listen(context.access, place.host, place.port)
        self._codes = modules()[0].StatusCode
        self._accept = accept
        self._first_s = context.access.body_timeout_s
        self._grace_s = int(options["server.shutdown.waiting.time"]) / 1000
        most = max(1, int(options["max.concurrent"]))
        #: Places for events that wait for the broker; the host refuses more.
        self._places = asyncio.Semaphore(most)
        self._window = min(_WINDOW, most)
        self._bytes_max = int(options["max.inbound.message.size"])
        metadata_max = int(options["max.inbound.metadata.size"])
        limits = GrpcLimits(self._bytes_max, metadata_max, context.access)
        #: Done once the source closes.
        self._ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        bound = await SERVERS.open(
            place.host, place.port, place.path, self._answer, limits, _tls(options)
        )
        self._at = place.host, bound, place.path
        host = f"[{place.host}]" if ":" in place.host else place.host
        self.endpoint = f"grpc://{host}:{bound}{place.path}"

    async def close(self) -> None:
        """Serve the method no more; a stream that continues ends once its events are stored."""
        if self._at is not None:
            at, self._at = self._at, None
            self._ending.set_result(None)
            await SERVERS.close(*at, self._grace_s)

    async def _answer(
        self, messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> bytes:
        """Store the messages of a call in their order, and answer an empty message."""
        stream = self._messages(messages, context)
        reading: asyncio.Future[_Message | None] | None = asyncio.ensure_future(anext(stream, None))
        waiting: deque[asyncio.Task[int]] = deque()
        stored = 0
        failure: RefusedPayloadError | UnavailableError | None = None
        try:
            while reading is not None or waiting:
                watched: set[asyncio.Future[Any]] = {waiting[0]} if waiting else set()
                if reading is not None and len(waiting) < self._window:
                    watched |= {reading, self._ending}
                await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                while waiting and waiting[0].done():
                    waiting.popleft().result()
                    stored += 1
                if reading not in watched:
                    continue
                if reading.done():
                    message = None
                    try:
                        message = reading.result()
                    except RefusedPayloadError as error:
                        # Those before it are stored first.
                        failure = error
                    reading = None
                    if message is not None:
                        await self._take_place(is_first=not (stored or waiting))
                        waiting.append(asyncio.create_task(self._stored(message)))
                        reading = asyncio.ensure_future(anext(stream, None))
                elif self._ending.done():
                    reading.cancel()
                    reading = None
                    failure = UnavailableError("the source stops")
            if failure is not None:
                raise failure
        except (RefusedPayloadError, UnavailableError) as error:
            await self._refuse(context, error, stored)
        finally:
            rest: list[asyncio.Future[Any]] = [*waiting]
            rest += [reading] if reading is not None else []
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
        return b""

    async def _take_place(self, *, is_first: bool) -> None:
        """Take a place for an event: a stream waits, a call of one message has to come again."""
        if is_first and self._places.locked():
            raise UnavailableError("too many calls wait for the broker", is_busy=True)
        await self._places.acquire()

    async def _stored(self, message: _Message) -> int:
        try:
            return await self._accept(*message)
        finally:
            self._places.release()

    async def _messages(
        self, messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[_Message]:
        """The messages of a call; the first one has to come in time."""
        metadata = properties_of(context.invocation_metadata())
        stream = aiter(messages)
        number = 0
        while True:
            try:
                async with asyncio.timeout(None if number else self._first_s):
                    message = await anext(stream)
            except StopAsyncIteration:
                return
            except TimeoutError:
                code = self._codes.DEADLINE_EXCEEDED
                await context.abort(code, f"no message in {self._first_s:g} s")
            if len(message) > self._bytes_max:
                raise RefusedPayloadError(f"the message has more than {self._bytes_max} bytes")
            payload, headers = opened(self._envelope, message)
            properties = {name.lower(): value for name, value in headers.items()}
            key = properties.get(KEY) or None
            if key is None and metadata.get(KEY):
                # The key of a call is that of each of its messages, with its place.  Metadata has
                # no line feed, so it is not the key of another call.
                key = f"{metadata[KEY]}\n{number}" if number else metadata[KEY]
            yield _Message(payload, {**metadata, **properties}, key)
            number += 1

    async def _refuse(
        self, context: grpc.aio.ServicerContext, error: Exception, stored: int
    ) -> None:
        """End a call with the status of an error."""
        beginning = f"after {stored} stored messages: " if stored else ""
        if isinstance(error, UnavailableError):
            after = str(round(1000 * max(1.0, error.retry_after_s or 1.0)))
            code, more = self._codes.UNAVAILABLE, ((_PUSHBACK, after),)
            await context.abort(code, f"{beginning}{error}", more)
        await context.abort(self._codes.INVALID_ARGUMENT, f"{beginning}{error}")


class GrpcServiceSource(GrpcSource):
    """See ``mesh.connect.contract.Server``."""

    _usual = PROCESS

    def __init__(self) -> None:
        super().__init__()
        self._waiting = WaitingRequests()

    async def open(self, context: Context, accept: Accept) -> None:
        """Subscribe to answers, and accept calls."""
        self._timeout_s = int(context.options["service.timeout"]) / 1000
        await self._waiting.open(context.client)
        await super().open(context, accept)

    async def close(self) -> None:
        """Accept nothing more; calls that wait may be answered for a while."""
        await super().close()
        await self._waiting.close()

    async def _only(self, messages: AsyncIterator[_Message]) -> _Message:
        """The only message of a call; a stream is read no further than its second one."""
        message = await anext(messages, None)
        if message is None or await anext(messages, None) is not None:
            raise RefusedPayloadError("the method takes one message a call")
        return message

    async def _answer(
        self, messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> bytes:
        """Store the only message of a call, and wait for the event that answers it."""
        with self._waiting.request() as (request_id, waiting):
            try:
                async with asyncio.timeout(self._first_s):
                    message = await self._only(self._messages(messages, context))
                # A repeated call would wait for the answer to the first one: no key.
                ids = {"messageid": request_id, "message.id": request_id}
                await self._accept(message.payload, {**message.properties, **ids}, None)
                async with asyncio.timeout(self._timeout_s):
                    answer = await waiting
                if self._envelope is not None:
                    return self._envelope.packed(answer.payload, answer.headers)
                context.set_trailing_metadata(tuple(checked(answer.headers)))
                return answer.payload
            except (RefusedPayloadError, UnavailableError) as error:
                await self._refuse(context, error, 0)
            except TimeoutError:
                await context.abort(self._codes.DEADLINE_EXCEEDED, "no answer in time")
            except ValueError as error:
                await context.abort(self._codes.INTERNAL, f"the answer can't be sent: {error}")
        return b""


def _tls(options: Options) -> tuple[Pems, bool] | None:
    """The certificate of a server, and whether clients show one; None for plain connections.

    Raises:
        MeshError: MESH-C131 for files that can't be read, or are missing.
    """
    has_cert = options.get("tls.cert") or options.get("tls.store")
    shows = bool(options.get("mutual.auth.enabled"))
    if not (has_cert or options.get("enable.ssl") or shows):
        return None
    # It says which file is wrong; gRPC does not.
    server_context(options)
    pems = pems_of(options)
    if shows and not pems.trusted:
        raise MeshError(
            "MESH-C131",
            "mutual.auth.enabled needs the authority of the clients' certificates",
            hint="Give tls.ca, or tls.truststore.",
        )
    return pems, shows
