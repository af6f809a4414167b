"""The streams of an app on the wire: state of their channels, and their last events."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError

from mesh.errors import MeshError
from mesh.jetstream.connection import api_call, unreachable
from mesh.mapping.messages import decode
from mesh.model import names
from mesh.plan.diagnostics import nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client
    from nats.js.api import RawStreamMsg

    from mesh.model.app import AppSpec, Channel
    from mesh.model.values import JsonObject

#: Requests to NATS at one time for one page.
AT_ONCE: Final = 32
#: JetStream streams of a channel that are asked; a channel by key has one for each partition.
PARTITIONS_MAX: Final = 64
#: Bytes of a message that are decoded; of longer ones only the beginning is shown.
DECODED_MAX: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class ChannelState:
    """A channel as its JetStream streams have it now."""

    stream: str
    subject: str
    js_streams: tuple[str, ...]
    key: str
    messages: int
    bytes: int
    first_sequence: int
    last_sequence: int
    #: Milliseconds since 1970; 0 for an empty channel.
    first_ms: int
    last_ms: int
    #: Limits of its streams; 0 for none.
    bytes_max: int
    age_max_s: float
    replicas: int
    #: Servers that hold a copy and have not followed for a while.
    late_replicas: int


@dataclass(frozen=True, slots=True)
class TapEvent:
    """A message of a channel with its events."""

    js_stream: str
    sequence: int
    #: By the broker's clock, milliseconds since 1970.
    at_ms: int
    headers: dict[str, str]
    #: JSON values; the message as text if it can't be read.
    events: tuple[object, ...]
    bytes: int
    error: str = ""


class Streams:
    """Views of channels; all raise MESH-A404 for an app or a stream that is not there."""

    def __init__(self, client: Client, app: Callable[[str], AppSpec]) -> None:
        self._client = client
        self._js = client.jetstream()
        self._app = app
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def states(self, app: str) -> list[ChannelState]:
        """The channels of an app, in the order of its plan; missing ones are left out."""
        channels = self._app(app).channels
        channel_states = await asyncio.gather(*(self._state(channel) for channel in channels))
        return [state for state in channel_states if state is not None]

    async def last(self, app: str, stream: str, count: int, text: str = "") -> list[TapEvent]:
        """The last messages of a stream, the newest first.

        Args:
            app: the app.
            stream: a stream on the wire.
            count: most messages that are looked at in each JetStream stream.
            text: only messages that contain it, without regard to case.
        """
        channel = self.channel(app, stream)
        partitions = range(min(channel.partitions, PARTITIONS_MAX))
        each = max(2, count // len(partitions))
        parts = await asyncio.gather(*(self._last_of(channel, p, each) for p in partitions))
        messages = [message for one in parts for message in one]
        needle = text.lower().encode()
        chosen = [m for m in messages if needle in (m.data or b"").lower()]
        events = [_event(channel, m) for m in chosen]
        return sorted(events, key=lambda one: (one.at_ms, one.sequence), reverse=True)[:count]

    async def message(self, app: str, stream: str, js_stream: str, sequence: int) -> TapEvent:
        """One message of a stream; MESH-A404 where it is not there any more."""
        channel = self.channel(app, stream)
        raw_message = (
            await self._get(js_stream, sequence) if js_stream in channel.js_streams else None
        )
        if raw_message is None or (raw_message.subject or "").startswith(f"{names.MARKERS}."):
            raise MeshError(
                "MESH-A404",
                f'stream "{stream}" of app "{app}" has no message {sequence}',
                hint="It may have expired: the page shows what is there.",
            )
        return _event(channel, raw_message)

    def channel(self, app: str, stream: str) -> Channel:
        """See ``channel_of``."""
        return channel_of(self._app(app), stream)

    async def _state(self, channel: Channel) -> ChannelState | None:
        streams = tuple(
            channel.js_stream(p) for p in range(min(channel.partitions, PARTITIONS_MAX))
        )
        infos = [i for i in await asyncio.gather(*map(self._info, streams)) if i is not None]
        if not infos:
            return None
        states = [info["state"] for info in infos]
        config = infos[0]["config"]
        return ChannelState(
            stream=channel.stream.name,
            subject=channel.subject(),
            js_streams=streams,
            key=channel.key_text,
            messages=sum(state["messages"] for state in states),
            bytes=sum(state["bytes"] for state in states),
            first_sequence=min(state["first_seq"] for state in states),
            last_sequence=max(state["last_seq"] for state in states),
            first_ms=min((ms for s in states if (ms := _ms(s["first_ts"]))), default=0),
            last_ms=max((ms for s in states if (ms := _ms(s["last_ts"]))), default=0),
            bytes_max=max(0, config.get("max_bytes", 0)) * len(infos),
            age_max_s=config.get("max_age", 0) / 1e9,
            replicas=config.get("num_replicas", 1),
            late_replicas=sum(_late(info) for info in infos),
        )

    async def _info(self, stream: str) -> JsonObject | None:
        """The answer of the server, whose times the client leaves out; None without a stream."""
        try:
            async with self._turns:
                answer = await api_call(self._client, f"STREAM.INFO.{stream}")
        except (TimeoutError, NatsError, OSError) as error:
            raise unreachable(error) from error
        return answer if "state" in answer else None

    async def _last_of(self, channel: Channel, partition: int, count: int) -> list[RawStreamMsg]:
        """The last messages of one partition; markers of writers are left out."""
        stream = channel.js_stream(partition)
        info = await self._info(stream)
        if info is None:
            return []
        last = info["state"]["last_seq"]
        # Every batch of an app ends with a marker.
        first = max(1, info["state"]["first_seq"], last - 2 * count + 1)
        messages = await asyncio.gather(*(self._get(stream, n) for n in range(first, last + 1)))
        marker = f"{names.ROOT}._marker."
        events = [m for m in messages if m is not None and not (m.subject or "").startswith(marker)]
        return events[-count:]

    async def _get(self, stream: str, sequence: int) -> RawStreamMsg | None:
        try:
            async with self._turns:
                return await self._js.get_msg(stream, sequence)
        except NotFoundError:
            return None
        except (TimeoutError, NatsError, OSError) as error:
            raise unreachable(error) from error


def channel_of(spec: AppSpec, stream: str) -> Channel:
    """The channel that holds every event of a stream; MESH-A404."""
    channel = spec.whole_channel(stream)
    if channel is None:
        stream_names = sorted({c.stream.name for c in spec.channels})
        raise MeshError(
            "MESH-A404",
            f'app "{spec.name}" has no stream "{stream}" on the wire',
            detail=f"On the wire are: {', '.join(stream_names)}.",
            hint=nearest(stream, stream_names),
        )
    return channel


def _event(channel: Channel, message: RawStreamMsg) -> TapEvent:
    data, headers = message.data or b"", dict(message.headers or {})
    shown: tuple[object, ...] = (data[:DECODED_MAX],)
    problem = ""
    if len(data) <= DECODED_MAX:
        try:
            shown = tuple(decode(data, headers.get("Content-Type", "")))
        except MeshError as error:
            problem = f"{error.message}: {error.detail}"
        # A payload may have been written by anyone, for any decoder's worst case.
        except Exception as error:
            problem = f"message can't be read: {type(error).__name__}"
    return TapEvent(
        js_stream=message.stream or channel.js_stream(),
        sequence=message.seq or 0,
        at_ms=_ms(message.time),
        headers=headers,
        events=shown,
        bytes=len(data),
        error=problem,
    )


def _ms(time: object) -> int:
    """A broker's time as milliseconds since 1970; 0 for none, which it writes as year 1."""
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time[:19] + "+00:00")
        except ValueError:
            return 0
    return int(time.timestamp() * 1000) if isinstance(time, datetime) and time.year > 1 else 0


def _late(info: JsonObject) -> int:
    replicas = (info.get("cluster") or {}).get("replicas") or []
    return sum(not peer.get("current") for peer in replicas)
