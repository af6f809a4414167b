"""Sinks ``grpc``, ``grpc-call`` and ``grpc-service-response``: a call for each payload, in order.

The metadata ``idempotency-key`` is the record's key.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

from nats.errors import NoRespondersError

from mesh.connect.access import check_egress
from mesh.connect.contract import Options, RefusedPayloadError, UnavailableError
from mesh.connect.grpc_specs import CONSUME, PROCESS
from mesh.connect.spec import Kind, value_of
from mesh.model import names
from mesh.receiver.grpc_server import modules
from mesh.receiver.outcomes import sent
from mesh.receiver.tls import client_context, pems_of
from mesh.receiver.types.calls import NO_STATUS, hand_over
from mesh.receiver.types.grpc_events import KEY, checked, method, opened, properties_of
from mesh.receiver.types.http_source import HttpServiceResponse
from mesh.telemetry import traces

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mesh.connect.contract import Context, Record
    from mesh.model.values import JsonMapping

#: Statuses after which the same call may succeed.
_AGAIN: Final = (
    "UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "CANCELLED", "UNKNOWN",
    "INTERNAL", "DATA_LOSS",
)  # fmt: skip
#: Words of gRPC libraries with RESOURCE_EXHAUSTED, of a message that will never pass.
_TOO_LARGE: Final = re.compile(
    r"larger than max|exceeds maximum size|too large|metadata size exceeds hard", re.IGNORECASE
)
_PUSHBACK: Final = "grpc-retry-pushback-ms"
_RETRY_AFTER_MAX_S: Final = 300.0
#: Pauses before a lost connection is tried again, milliseconds.
_RECONNECT_MS: Final = (100, 2000)
_CHECK_S: Final = 5.0


class GrpcSink:
    """See ``mesh.connect.contract.Sink``."""

    state: JsonMapping | None = None
    _usual = CONSUME

    def __init__(self) -> None:
        self._channel: Any = None

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Prepare a connection; the first call connects."""
        options = self._options = context.options
        place, self._envelope = method(options, "publisher.url", self._usual)
        check_egress(context.access, place.host, place.port)
        grpc, aio = modules()
        self._error = aio.AioRpcError
        self._timeout_s = int(options["call.timeout"]) / 1000
        self._at_once = max(1, int(options["max.concurrent"]))
        host = f"[{place.host}]" if ":" in place.host else place.host
        where, arguments = f"dns:///{host}:{place.port}", _arguments(options)
        # It says which file is wrong; gRPC does not.
        if client_context(options) is None and not options.get("enable.ssl"):
            self._channel = aio.insecure_channel(where, arguments)
        else:
            pems = pems_of(options)
            credentials = grpc.ssl_channel_credentials(
                pems.trusted or None, pems.key or None, pems.chain or None
            )
            self._channel = aio.secure_channel(where, credentials, arguments)
        self._call = self._channel.unary_unary(place.path)

    async def check(self, context: Context) -> None:
        """Connect; nothing is called."""
        await self.open(context, None)
        try:
            async with asyncio.timeout(_CHECK_S):
                await self._channel.channel_ready()
        except TimeoutError as error:
            raise UnavailableError(f"no connection in {_CHECK_S:g} s") from error
        finally:
            await self.close()

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Send the records, ``max.concurrent`` at a time."""
        return await sent(self._send, records, self._at_once)

    async def _send(self, record: Record) -> str | None:
        options = {**self._options, **record.options}
        try:
            headers, metadata = _pairs(options, "headers"), _pairs(options, "metadata")
            if options.get("sequence"):
                headers.append(("sequence", str(options["sequence"])))
            message = record.payload
            if self._envelope is not None:
                message = self._envelope.packed(message, headers)
                headers = []
            pairs = checked([*headers, *metadata])
        except ValueError as error:
            return f"the call can't be made: {error}"
        pairs = [*pairs, (KEY, record.key), *traces.outgoing(pairs)]
        call = self._call(message, timeout=self._timeout_s, metadata=tuple(pairs))
        try:
            answer = await call
            return await self._settled(record, answer, call)
        except self._error as error:
            return _outcome(error)

    async def _settled(self, record: Record, answer: bytes, call: object) -> str | None:
        """The outcome of a record by the answer."""
        return None

    async def close(self) -> None:
        """Disconnect."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


class GrpcCall(GrpcSink):
    """See ``mesh.connect.contract.Sink``."""

    takes_events = True
    _usual = PROCESS

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Prepare a connection."""
        await super().open(context, state)
        self._mesh = context.client
        self._subject = names.call_subject(context.app, context.options["sink.id"], NO_STATUS)

    async def _settled(self, record: Record, answer: bytes, call: Any) -> str | None:
        """Hand an answer to the source."""
        properties = properties_of(await call.initial_metadata(), await call.trailing_metadata())
        payload, flaw = b"", ""
        try:
            payload, headers = opened(self._envelope, answer)
            properties |= headers
        except RefusedPayloadError as error:
            flaw = str(error)
        try:
            refused = await hand_over(
                self._mesh, self._subject, record, payload, properties.items(), flaw
            )
        except NoRespondersError as error:
            raise UnavailableError("no source grpc-call-response with its sink.id runs") from error
        return f"the answer can't be read: {refused}" if refused else None


class GrpcServiceResponse(HttpServiceResponse):
    """See ``mesh.connect.contract.Sink``."""

    def _headers(self, pairs: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        return pairs


def _arguments(options: Options) -> list[tuple[str, int]]:
    """Settings of a connection."""
    first, most = _RECONNECT_MS
    arguments = [
        # The environment of the worker, and the name server, are not the app's.
        ("grpc.enable_http_proxy", 0),
        ("grpc.service_config_disable_resolution", 1),
        # The host tries again.
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", first),
        ("grpc.min_reconnect_backoff_ms", first),
        ("grpc.max_reconnect_backoff_ms", most),
        ("grpc.max_receive_message_length", int(options["max.inbound.message.size"])),
        ("grpc.max_metadata_size", int(options["max.inbound.metadata.size"])),
        # Else it refuses some of the answers with more, by chance.
        ("grpc.absolute_max_metadata_size", int(options["max.inbound.metadata.size"])),
    ]
    if options.get("keep.alive.time"):
        arguments += [
            ("grpc.keepalive_time_ms", int(options["keep.alive.time"])),
            ("grpc.keepalive_timeout_ms", int(options["keep.alive.timeout"])),
            ("grpc.keepalive_permit_without_calls", int(options["keep.alive.without.calls"])),
        ]
    return arguments


def _pairs(options: Options, name: str) -> list[tuple[str, str]]:
    pairs = options.get(name) or []
    return list(value_of(Kind.PAIRS, pairs) if isinstance(pairs, str) else pairs)


def _outcome(error: Any) -> str:
    """The reason of a refusal by a failed call.

    Raises:
        UnavailableError: the same call may succeed.
    """
    code, details = error.code().name, str(error.details() or "")
    reason = f"answered {code}: {details[:200]}" if details else f"answered {code}"
    is_size = code == "RESOURCE_EXHAUSTED" and _TOO_LARGE.search(details) is not None
    if code in _AGAIN and not is_size:
        raise UnavailableError(reason, retry_after_s=_seconds(error.trailing_metadata()))
    return reason


def _seconds(metadata: Iterable[tuple[str, Any]] | None) -> float | None:
    """Time after which a server wants the call again."""
    text = properties_of(metadata).get(_PUSHBACK, "")
    return min(int(text) / 1000, _RETRY_AFTER_MAX_S) if text.isdecimal() else None
