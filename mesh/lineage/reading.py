"""Ranges of the log that lineage reads, within a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from mesh.errors import MeshError
from mesh.jetstream import channel_reader, stream_positions
from mesh.model import names
from mesh.spark.sink_rows import ARROW_TYPE, POSITION_COLUMN

if TYPE_CHECKING:
    from nats.aio.client import Client

    from mesh.jetstream.channel_reader import LogMessage
    from mesh.model.app import Channel
    from mesh.model.lineage import Budget
    from pyspark_nats.sink.row_tags import RowHeader

#: Messages of one input that a group with state is run over.
REPLAYED_MAX = 20_000
#: Messages of one range.
_RANGE_MAX = 100_000
#: Messages after an event among which those of its batch are counted from the batch's end.
_NEAR = 1000
#: What a broker's times may go back when another server leads the stream, milliseconds.
_SLACK_MS = 10_000


class RangeReader:
    """Reads ranges of an app's JetStream streams."""

    def __init__(self, client: Client, budget: Budget) -> None:
        self._client = client
        self._budget = budget

    async def read(
        self, js_stream: str, first: int, last: int, subject: str = ">"
    ) -> list[LogMessage]:
        """The messages of a range; MESH-C153 for too many."""
        messages = []
        async for one in channel_reader.read(self._client, js_stream, first, last, subject):
            messages.append(one)
            self._budget.messages -= 1
            if self._budget.messages < 0 or len(messages) > _RANGE_MAX:
                raise too_many("", js_stream, len(messages))
        return messages

    async def beginning(
        self, js_stream: str, channel: Channel, after: int, end_ms: int
    ) -> tuple[list[LogMessage], int]:
        """The first messages after a sequence that were stored up to a time.

        Returns:
            At most ``REPLAYED_MAX`` messages, and the time up to which they are all: ``end_ms``,
            or an earlier one if there are more.
        """
        messages: list[LogMessage] = []
        subject = subject_of(channel)
        async for one in channel_reader.read(self._client, js_stream, after + 1, 2**62, subject):
            self._budget.messages -= 1
            if self._budget.messages < 0:
                raise too_many("", js_stream, len(messages))
            if one.time_ms > end_ms + _SLACK_MS:
                break
            if one.time_ms > end_ms:
                continue
            if len(messages) == REPLAYED_MAX:
                end_ms = one.time_ms - 1
                break
            messages.append(one)
        return messages, end_ms

    async def marker_after(self, js_stream: str, sequence: int) -> LogMessage | None:
        """The marker of the batch that has a message; it is behind all of the batch's."""
        subject = f"{names.marker_subject(js_stream)}.>"
        # However many messages the batch has: without its marker an event would seem to be
        # one from outside.
        async for one in channel_reader.read(self._client, js_stream, sequence + 1, 2**62, subject):
            return one
        return None

    async def place(
        self, js_stream: str, channel: Channel, sequence: int, marker: LogMessage
    ) -> tuple[list[LogMessage], list[LogMessage], LogMessage | None]:
        """Messages of a batch on one side of one of them, whichever side has few.

        Returns:
            The messages before it, or from it on: one of both is empty.  With those before it, the
            marker of its producer's earlier batch.
        """
        subject = channel.subject() if not channel.is_keyed else ">"
        if marker.sequence - sequence > _NEAR:
            earlier = await channel_reader.last_of_each(
                self._client, js_stream, f"{names.marker_subject(js_stream)}.>", sequence
            )
            start = max((one.sequence for one in earlier), default=0)
            if sequence - start < marker.sequence - sequence:
                previous = next((one for one in earlier if one.subject == marker.subject), None)
                return await self.read(js_stream, start + 1, sequence - 1, subject), [], previous
        return [], await self.read(js_stream, sequence, marker.sequence - 1, subject), None

    async def producer(self, js_stream: str, row: RowHeader) -> str | None:
        """The producer of a row that tells it; None for one that the stream does not know."""
        return (await stream_positions.producers(self._client, js_stream)).get(row.producer)

    async def first(self, js_stream: str) -> int:
        """The lowest sequence that retention has left."""
        return (await self._client.jetstream().stream_info(js_stream)).state.first_seq


def subject_of(channel: Channel) -> str:
    """The subjects of a channel's events among those of its stream."""
    return channel.subject() if not channel.is_keyed else f"{names.ROOT}.{channel.app}.>"


def too_many(group: str, js_stream: str, count: int) -> MeshError:
    """MESH-C153 for a group, or for an event."""
    what = f'group "{group}"' if group else "the event"
    return MeshError(
        "MESH-C153",
        f"{what} can't be explained: there is too much to recompute",
        detail=f"Stream {js_stream} holds {count} messages or more up to it; at most "
        f"{REPLAYED_MAX} are run again.",
        hint="Fork the app from a place shortly before the event, and ask about the fork's.",
    )


def position_of(message: LogMessage, index: int) -> int:
    """The position of an event of an Arrow message of ours; -1 in other messages."""
    if message.headers.get("Content-Type") != ARROW_TYPE:
        return -1
    with pa.ipc.open_stream(message.data) as reader:
        table = reader.read_all()
    if POSITION_COLUMN not in table.column_names:
        return -1
    return int(table.column(POSITION_COLUMN)[index].as_py())
