"""A gRPC server and calls of a client, for tests: messages are bytes, and methods have any name."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
import grpc.aio

from mesh.mapping.proto_text import message_class

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

#: As a client of others has it; ``test_an_event_has_the_bytes_of_the_original`` has its bytes.
Event = message_class(
    'syntax = "proto3"; message Event { string payload = 1; map<string, string> headers = 2; }',
    "Event",
)


def event(payload: str, headers: Mapping[str, str] | None = None) -> bytes:
    """The bytes of an ``Event``."""
    found: bytes = Event(payload=payload, headers=dict(headers or {})).SerializeToString()
    return found


def payload_of(message: bytes) -> str:
    """The payload of an ``Event``."""
    return str(Event.FromString(message).payload)


class Received(NamedTuple):
    """A call that a server has got."""

    method: str
    message: bytes
    metadata: dict[str, Any]


class Failure(NamedTuple):
    """A status in place of an answer."""

    code: grpc.StatusCode
    details: str = "no"
    metadata: Sequence[tuple[str, str]] = ()


class GrpcEnd:
    """A server of a test, which can be closed and opened again on its port."""

    def __init__(self, answer: Callable[[bytes], bytes | Failure] = lambda _: b"") -> None:
        self._answer = answer
        self._server: Any = None
        self.port = 0
        self.calls: list[Received] = []

    async def open(self, credentials: Any = None) -> None:
        """Accept calls of any method."""
        self._server = grpc.aio.server(handlers=(self,), options=(("grpc.so_reuseport", 0),))
        where = f"127.0.0.1:{self.port}"
        if credentials is None:
            self.port = self._server.add_insecure_port(where)
        else:
            self.port = self._server.add_secure_port(where, credentials)
        await self._server.start()

    async def close(self) -> None:
        """End the server; calls under way fail."""
        if self._server is not None:
            await self._server.stop(None)

    def service(self, details: Any) -> Any:
        """See ``grpc.GenericRpcHandler``."""

        async def answer(message: bytes, context: Any) -> bytes:
            metadata = dict(context.invocation_metadata())
            found = self._answer(message)
            if isinstance(found, Failure):
                await context.abort(found.code, found.details, tuple(found.metadata))
                raise AssertionError("the call has ended")
            self.calls.append(Received(details.method, message, metadata))
            context.set_trailing_metadata((("x-of", "the end"),))
            return found

        return grpc.unary_unary_rpc_method_handler(answer)


@contextlib.asynccontextmanager
async def grpc_end(
    answer: Callable[[bytes], bytes | Failure] = lambda _: b"",
) -> AsyncIterator[GrpcEnd]:
    """A server that is closed in the end."""
    end = GrpcEnd(answer)
    await end.open()
    try:
        yield end
    finally:
        await end.close()


async def call(
    endpoint: str,
    *messages: bytes,
    metadata: Iterable[tuple[str, str]] = (),
    credentials: Any = None,
    timeout_s: float = 10.0,
) -> bytes:
    """Call the method of an address with a stream of messages; the answer.

    Raises:
        grpc.aio.AioRpcError: another status than OK.
    """
    where, _, method = endpoint.removeprefix("grpc://").partition("/")
    channel = (
        grpc.aio.insecure_channel(where)
        if credentials is None
        else grpc.aio.secure_channel(where, credentials)
    )
    async with channel:
        if len(messages) == 1:
            one = channel.unary_unary(f"/{method}")
            answer: bytes = await one(messages[0], timeout=timeout_s, metadata=tuple(metadata))
            return answer
        many = channel.stream_unary(f"/{method}")
        several: bytes = await many(iter(messages), timeout=timeout_s, metadata=tuple(metadata))
        return several


async def status(*arguments: Any, **more: Any) -> tuple[str, str]:
    """Name of the status of a ``call``, and its details."""
    try:
        await call(*arguments, **more)
    except grpc.aio.AioRpcError as error:
        return error.code().name, error.details() or ""
    return "OK", ""
