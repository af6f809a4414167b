"""Records of a sink's refused events: in the fault stream, or else in the app's error stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nats.errors import MaxPayloadError

from mesh.model import error_entry, names
from mesh.receiver.faults import REFUSED, write_faults

if TYPE_CHECKING:
    from nats.aio.client import Client

    from mesh.jetstream.channel_reader import ChannelMessage
    from mesh.model.app import Channel
    from mesh.receiver.outbox_items import OutboxItem


@dataclass(slots=True)
class Recorder:
    """Writes what one destination has refused; a repeat has the message id of the first."""

    client: Client
    channel: Channel
    faults: Channel | None
    group: str
    #: Name of the destination.
    connector: str
    key_prefix: str
    #: Number of events so far.
    count: int = 0

    async def record(
        self, item: OutboxItem, reason: str, data: bytes, kind: str = REFUSED, tries: int = 1
    ) -> None:
        """Record a payload, or write each of its events to the fault stream."""
        self.count += len(item.places)
        if self.faults is not None:
            head = f"{self.key_prefix}/{item.message.sequence}."
            keys = [f"{head}{place}/{self.connector}" for place in item.places]
            try:
                await write_faults(self.client, self.faults, item, reason, kind=kind, keys=keys)
                return
            except MaxPayloadError:
                # With the reason an event may be larger than a message; an entry has a part of it.
                pass
        await self._write(item.message, item.places[0], reason, data, tries, item)

    async def record_unreadable(self, message: ChannelMessage, index: int, reason: str) -> None:
        """Record an event that can't be read: one of the stream, and not of the sink."""
        self.count += 1
        await self._write(message, index, reason, message.data, 1)

    async def _write(
        self, message: ChannelMessage, index: int, reason: str, data: bytes, tries: int,
        item: OutboxItem | None = None,
    ) -> None:  # fmt: skip
        app = self.channel.app
        entry = error_entry.of_unreadable(
            self.channel.stream.name, message.sequence, index, message.time_ms, None,
            self.group, reason, data, is_event=item is not None,
            connector=self.connector if item is not None else "", attempts=tries,
            options=item.record.options if item is not None else None,
            event=item.event if item is not None else b"",
        )  # fmt: skip
        key = f"{self.key_prefix}/{message.sequence}.{index}/{self.connector}"
        headers = {"Nats-Msg-Id": key}
        await self.client.jetstream().publish(names.error_subject(app), entry, headers=headers)
