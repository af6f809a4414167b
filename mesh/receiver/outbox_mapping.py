"""Messages of a channel as records for one destination; events that it can't get are recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.mapping.contract import Refusal
from mesh.receiver.outbox_items import finished, items_of
from pyspark_nats.decode import decode_messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from mesh.jetstream.channel_reader import ChannelMessage
    from mesh.mapping.contract import SinkMapper
    from mesh.receiver.outbox_items import Destination, Items
    from mesh.receiver.recording import Recorder


@dataclass(frozen=True, slots=True)
class MappedItems:
    """Decodes, chooses and maps the events of a channel."""

    to: Destination
    mapper: SinkMapper
    recorder: Recorder
    #: Whether events that can't be read are recorded here: one of several readers does it.
    records_errors: bool

    async def items(self, messages: Sequence[ChannelMessage]) -> AsyncIterator[Items]:
        """The records of the messages, some at a time."""
        channel, to = self.recorder.channel, self.to
        data = pa.array([m.data for m in messages], pa.binary())
        kinds = pa.array([m.content_type for m in messages], pa.string())
        first = 0
        while first < len(messages):
            result = decode_messages(data.slice(first), kinds.slice(first), channel.stream.arrow)
            for number, index, reason in result.errors if self.records_errors else ():
                await self.recorder.record_unreadable(messages[first + number], index, reason)
            rows, message_of, index_of = result.rows, result.message, result.index
            if to.choose is not None and rows.num_rows:
                mask = np.asarray(to.choose(rows), bool)
                rows, message_of = rows.filter(pa.array(mask)), message_of[mask]
                index_of = index_of[mask]
            chunk = messages[first : first + result.taken]
            prefix = self.recorder.key_prefix
            yield await self._accepted(
                items_of(to, self.mapper, prefix, rows, chunk, message_of, index_of)
            )
            first += result.taken

    async def _accepted(self, items: Items) -> Items:
        """The items that have a payload and good values of dynamic options."""
        refused = [at for at, one in enumerate(items.payloads) if type(one) is Refusal]
        for at in refused:
            item = items[at]
            await self.recorder.record(item, item.record.payload.decode(), item.event)
        items = items.without(refused)
        reasons = [self.to.objection(options) for options in items.options]
        for at, reason in enumerate(reasons):
            if reason is not None:
                await self.recorder.record(items[at], reason, items.payloads[at])
        items = items.without([at for at, one in enumerate(reasons) if one is not None])
        return finished(items, self.mapper, self.to)
