"""Wait for acks of streams, which ends when one of the streams gets another leader.

A batch that was sent to a leader which was killed has no ack, and no server reports its loss.
Its publisher would wait for as long as a slow server may need.  So after a short time the streams
are asked who leads them; only a leader answers, and a new one has never heard of the batch.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol import frames, jetstream
from pyspark_nats.protocol.answers import Reply
from pyspark_nats.protocol.connection import DisconnectedError

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark_nats.protocol.connection import Connection
    from pyspark_nats.protocol.jetstream import StreamInfo

#: Time without an ack before the streams are asked, and the interval of the requests, seconds.
_ASK_S: Final = 0.4
#: Most time without an ack, seconds.
_ACK_S: Final = 5.0


@dataclass(slots=True)
class LeaderWatch:
    """One wait for acks of some streams."""

    connection: Connection
    #: The streams as they were when their leader was last known, by name; kept up to date.
    infos: dict[str, StreamInfo]
    #: Those of the batches that have no ack.
    streams: Collection[str]
    _deadline_s: float = field(init=False)
    _ask_s: float = field(init=False)
    #: Streams by the reply subject of a request.
    _requests: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        now_s = time.monotonic()
        self._ask_s, self._deadline_s = now_s + _ASK_S, now_s + _ACK_S

    def receive(self) -> None:
        """Wait for bytes; ask the streams when it is time.

        Raises:
            DisconnectedError: none came for long, or the connection broke.
        """
        wait_s = min(self._ask_s, self._deadline_s) - time.monotonic()
        if self.connection.is_readable(wait_s) or time.monotonic() >= self._deadline_s:
            self.connection.receive(self._deadline_s)
            return
        self._ask_s += _ASK_S
        clustered = [name for name in self.streams if self.infos[name].leader]
        replies = self.connection.reply_subjects(len(clustered))
        self._requests |= zip(replies, clustered, strict=True)
        for reply, name in zip(replies, clustered, strict=True):
            subject = self.connection.api(f"STREAM.INFO.{name}")
            self.connection.send(frames.publish(subject, b"", reply=reply))

    def take(self, subject: str, data: bytes) -> None:
        """Process a message that is no ack.

        Raises:
            DisconnectedError: a stream has another leader than before.
        """
        name = self._requests.pop(subject, None)
        if name is None:
            return
        try:
            info = jetstream.info(name, Reply(b"", data))
        except (RefusedError, DisconnectedError):
            # The ack, or its absence, tells more.
            return
        if info.leader != self.infos[name].leader:
            self.infos[name] = info
            raise DisconnectedError(f'stream "{name}" has another leader')
