"""Source and sink ``mqtt``.

With a quality of service above 0 the session of a source outlives its connection: the broker keeps
what arrives meanwhile, and the source acknowledges a message once its events are stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from mesh.connect.access import check_url, words
from mesh.connect.contract import Batch, UnavailableError, library
from mesh.processes.signals import end
from mesh.receiver.outcomes import TRIES_ALONE, outcomes_of
from mesh.receiver.tls import client_context
from mesh.receiver.types.arrivals import Arrivals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiomqtt import Client, Message

    from mesh.connect.contract import Context, Record
    from mesh.model.values import JsonMapping

_TOGETHER: Final = 1000
_WAIT_S: Final = 0.5
#: Messages that are sent and not yet acknowledged.
_IN_FLIGHT: Final = 200
#: Bytes of a message besides topic, payload and key, at most.
_HEAD: Final = 32
#: Answers after which the same message may be taken: its number is in use, and a quota.
_AGAIN: Final = (0x91, 0x97)
#: Answers to the message itself, whatever its topic: its packet is too large, its payload invalid.
_OF_MESSAGE: Final = (0x95, 0x99)
#: Payloads of which each broker takes packets, bytes.
_PACKET_MIN: Final = 256
#: Reason codes from there on are failures.
_REFUSED: Final = 0x80
_PORTS: Final = {"tcp": 1883, "mqtt": 1883, "ssl": 8883, "mqtts": 8883, "tls": 8883}


def client_of(context: Context, name: str, **more: object) -> Client:
    """A client of the broker in ``url``, not connected.

    Raises:
        ValueError: the URL is of another kind.
        MeshError: MESH-C132 for a broker that is not open to connectors.
    """
    mqtt = library("aiomqtt", "mqtt")
    options = context.options
    parts = urlsplit(str(options["url"]))
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError('option "url" is tcp://host:1883 or ssl://host:8883')
    check_url(context.access, str(options["url"]), _PORTS[parts.scheme])
    secure = None
    if _PORTS[parts.scheme] == 8883:
        secure = client_context(options) or ssl.create_default_context()
    client: Client = mqtt.Client(
        parts.hostname,
        parts.port or _PORTS[parts.scheme],
        identifier=name,
        username=options.get("username"),
        password=options.get("password"),
        keepalive=max(1, int(options.get("keep.alive") or 60_000) // 1000),
        timeout=int(options.get("connection.timeout") or 30_000) / 1000,
        tls_context=secure,
        **more,
    )
    return client


def _name_of(context: Context) -> str:
    """The name of the session of a source."""
    return context.options.get("client.id") or f"mesh-{context.app}-{context.stream}"


async def _entered(client: Client) -> None:
    mqtt = library("aiomqtt", "mqtt")
    try:
        await client.__aenter__()
    except (mqtt.MqttError, OSError) as error:
        raise UnavailableError(str(error) or type(error).__name__) from error


async def _check(context: Context) -> None:
    """Log in under another name: the broker ends the connection of an earlier client of one."""
    client = client_of(context, f"mesh-check-{secrets.token_hex(4)}")
    await _entered(client)
    await _left(client)


async def _left(client: Client | None) -> None:
    mqtt = library("aiomqtt", "mqtt")
    if client is not None:
        with contextlib.suppress(mqtt.MqttError, OSError):
            await client.__aexit__(None, None, None)


class MqttSource:
    """See ``mesh.connect.contract.Source``."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self, context: Context, position: JsonMapping | None) -> None:
        """Connect with the stable name of the source, and subscribe."""
        mqtt = library("aiomqtt", "mqtt")
        options = context.options
        self._number = int((position or {}).get("batch") or 0)
        self._salt = secrets.token_hex(4)
        self.arrived: Arrivals[Message] = Arrivals()
        service = int(options.get("quality.of.service") or 0)
        is_clean = options.get("clean.session")
        client = client_of(
            context,
            _name_of(context),
            clean_session=service == 0 if is_clean is None else bool(is_clean),
        )
        # The library has no method for it: the client below acknowledges when it is asked to.
        inner: Any = client._client
        inner.manual_ack_set(True)
        connected, has_session = inner.on_connect, False

        def greeted(*arguments: Any) -> None:
            nonlocal has_session
            has_session = bool(getattr(arguments[2], "session_present", False))
            connected(*arguments)

        inner.on_connect = greeted
        await _entered(client)
        self._client = client
        self._reading = asyncio.create_task(self._read(client))
        topics = words(options["topic"])
        self._subscribed = {"topics": topics, "qos": service}
        earlier = (position or {}).get("subscribed") if has_session else None
        gone = [one for one in (earlier or {}).get("topics", ()) if one not in topics]
        # The broker would deliver retained messages again.
        new = [] if earlier == self._subscribed else topics
        try:
            for topic in gone:
                await client.unsubscribe(topic)
            for topic in new:
                granted = await client.subscribe(topic, qos=service)
                # Whole numbers with MQTT 3.
                if any(getattr(code, "value", code) >= _REFUSED for code in granted):
                    raise UnavailableError(f'the broker refuses the topic "{topic}": {granted[0]}')
        except (mqtt.MqttError, OSError) as error:
            raise UnavailableError(str(error) or type(error).__name__) from error

    async def check(self, context: Context) -> None:
        """Log in, and leave sessions alone."""
        await _check(context)

    async def remove(self, context: Context) -> None:
        """End the session, for which the broker would keep all messages that arrive."""
        client = client_of(context, _name_of(context), clean_session=True)
        await _entered(client)
        await _left(client)

    async def _read(self, client: Client) -> None:
        try:
            async for message in client.messages:
                self.arrived.put(message, len(_payload(message)))
        # Whatever ended it, the next ``read`` has to report it.
        except Exception as error:
            self.arrived.fail(str(error) or type(error).__name__)

    async def read(self) -> Batch | None:
        """The messages that have arrived."""
        self._number += 1
        messages = await self.arrived.take(self._number, _TOGETHER, _WAIT_S)
        if not messages:
            return None
        return Batch(
            [_payload(message) for message in messages],
            {"batch": self._number, "subscribed": self._subscribed},
            [
                {
                    "topic": str(message.topic),
                    "qos": str(message.qos),
                    "retain": str(message.retain).lower(),
                }
                for message in messages
            ],
            [f"{self._salt}-{self._number}-{at}" for at in range(len(messages))],
        )

    async def committed(self, position: JsonMapping) -> None:
        """Acknowledge the messages of the batch and of earlier ones."""
        assert self._client is not None
        for message in self.arrived.stored(position["batch"]):
            self._client._client.ack(message.mid, message.qos)

    async def close(self) -> None:
        """Disconnect; the broker keeps a session that is not clean."""
        reading, self._reading = self._reading, None
        await end([reading] if reading is not None else [])
        client, self._client = self._client, None
        await _left(client)


def _payload(message: Message) -> bytes:
    payload = message.payload
    return bytes(payload or b"")


class _LostError(UnavailableError):
    """The connection was lost while a message waited for its acknowledgement."""


class MqttSink:
    """See ``mesh.connect.contract.Sink``."""

    state: JsonMapping | None = None

    def __init__(self) -> None:
        self._client: Client | None = None
        #: Whether the connection was lost during the last write: then messages are sent alone.
        self._was_lost = False
        #: Key of the message that was sent alone when it was lost last, and how often.
        self._suspect = ("", 0)

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Connect."""
        mqtt = library("aiomqtt", "mqtt")
        self._options = context.options
        self._is_5 = self._options.get("mqtt.version") != "3.1.1"
        self._waiting: dict[int, asyncio.Future[object]] = {}
        self._packet_max = 0
        self._timeout_s = int(context.options.get("connection.timeout") or 30_000) / 1000
        client = client_of(
            context,
            context.options.get("client.id") or f"mesh-{context.instance}",
            protocol=mqtt.ProtocolVersion.V5 if self._is_5 else mqtt.ProtocolVersion.V311,
            max_inflight_messages=_IN_FLIGHT,
        )
        # The library keeps neither the answer to a message nor the limits of the broker.
        inner: Any = client._client
        inner.on_publish = self._answered
        connected, disconnected = inner.on_connect, inner.on_disconnect

        def greeted(*arguments: Any) -> None:
            self._packet_max = int(getattr(arguments[-1], "MaximumPacketSize", 0) or 0)
            connected(*arguments)

        def lost(*arguments: Any) -> None:
            self._was_lost = self._was_lost or bool(self._waiting)
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(_LostError("the connection is lost"))
            disconnected(*arguments)

        inner.on_connect, inner.on_disconnect = greeted, lost
        await _entered(client)
        self._client = client

    async def check(self, context: Context) -> None:
        """Log in, and leave sessions alone."""
        await _check(context)

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Publish in order; with a quality of service, wait for the acknowledgements.

        Brokers end the connection at a packet that is too large for them, and most don't say why.
        So after a loss each message is sent alone, and one at which it is lost again and again is
        refused.
        """
        outcomes: list[str | None] = []
        at_once = 1 if self._was_lost else _IN_FLIGHT
        for first in range(0, len(records), at_once):
            some = records[first : first + at_once]
            results = await asyncio.gather(*map(self._publish, some), return_exceptions=True)
            if at_once == 1 and isinstance(results[0], _LostError) and self._is_refused(some[0]):
                outcomes.append(
                    f"a message of {len(some[0].payload)} bytes seems to be too large for the "
                    "broker, which ends the connection at it"
                )
                # The others need another connection.
                rest = [_LostError("the connection is lost")] * (len(records) - first - 1)
                return outcomes_of([*outcomes, *rest], is_lost=True)
            # The client does not connect again.
            outcomes = outcomes_of([*outcomes, *results], is_lost=True)
        self._was_lost = False
        return outcomes

    def _is_refused(self, record: Record) -> bool:
        """Whether the connection was lost often enough while a message was sent alone."""
        key, losses = self._suspect
        losses = losses + 1 if key == record.key else 1
        self._suspect = record.key, losses
        return losses >= TRIES_ALONE and len(record.payload) >= _PACKET_MIN

    async def _publish(self, record: Record) -> str | None:
        assert self._client is not None
        options = {**self._options, **record.options}
        topic, service = str(options["topic"]), str(options.get("quality.of.service") or "1")
        retain = str(options.get("message.retain") or "false").lower()
        if not topic or any(c in topic for c in "+#\0"):
            return f'"{topic[:80]}" is no topic to publish to'
        if service not in ("0", "1", "2"):
            return f'"{service}" is no quality of service'
        if retain not in ("true", "false"):
            return f'option "message.retain" is true or false, and not "{retain}"'
        properties = None
        if self._is_5:
            packets = library("paho.mqtt.packettypes", "mqtt")
            properties = library("paho.mqtt.properties", "mqtt").Properties(
                packets.PacketTypes.PUBLISH
            )
            properties.UserProperty = ("key", record.key)
        size = len(topic.encode()) + len(record.payload) + len(record.key.encode()) + _HEAD
        if 0 < self._packet_max < size:
            return f"the message has {size} bytes, and the broker takes {self._packet_max}"
        try:
            sent = self._client._client.publish(
                topic, record.payload, int(service), retain == "true", properties
            )
        except ValueError as error:
            return str(error)
        if sent.rc != 0:
            raise UnavailableError(f"the message could not be sent: {sent.rc.name}")
        if sent.is_published():
            return None
        answer = self._waiting[sent.mid] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._timeout_s):
                code = await answer
        finally:
            self._waiting.pop(sent.mid, None)
        if not code.is_failure:
            return None
        reason = f'topic "{topic[:80]}": the broker answers {code}'
        is_of_topic = "topic" in record.options and code.value not in _AGAIN
        if is_of_topic or code.value in _OF_MESSAGE:
            return reason
        raise UnavailableError(reason)

    def _answered(self, _: object, __: object, number: int, code: object, ___: object) -> None:
        waiting = self._waiting.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_result(code)

    async def close(self) -> None:
        """Disconnect."""
        client, self._client = self._client, None
        await _left(client)
