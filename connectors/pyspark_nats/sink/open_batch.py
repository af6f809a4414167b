"""State of a producer's ingest batch between two runs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol.answers import Reply
from pyspark_nats.protocol.transport import DisconnectedError

if TYPE_CHECKING:
    from pyspark_nats.json_types import JsonObject

#: Most messages between two acks of the server; it may send more acks.
FLOW: Final = 500
#: Purpose of the inbox that readers of the rows do not learn.
PINGS: Final = "pings"


@dataclass(eq=False)
class OpenBatch:
    """An ingest batch of one producer, which lasts for many runs."""

    batch_id: str = field(default_factory=lambda: os.urandom(6).hex())
    key: bytes = field(default_factory=lambda: os.urandom(16))
    #: Sequence of its newest marker; 0 for none.
    sequence: int = 0
    #: Number of its last row that was sent; that an ack covers; and that a ping covers.
    sent: int = 0
    acked: int = 0
    taken: int = 0
    #: Messages between two acks; the first tells how many they may be.
    flow: int = 1
    #: When its last row was sent, monotonic, seconds.
    used_s: float = 0.0
    #: The beginning of the reply subjects of its pings.
    pings: str = ""
    #: Why the server takes no more rows of it; empty as far as is known.
    failure: str = ""

    def reply(self, inbox: str) -> str:
        """The reply subject of its messages, up to their number; a gap ends the batch."""
        return f"{inbox}.{self.batch_id}.{FLOW}.fail"

    def take(self, subject: str, header: bytes, data: bytes) -> None:
        """Process the answer to a row, to a ping, or to a marker; a failure is noted."""
        inbox, *rest = subject.rsplit(".", 3)
        try:
            if not data:
                raise DisconnectedError(f"no responders: {header[:40]!r}")
            reply = Reply(header, data).json()
            if rest[-1:] == ["$FI"]:
                self._acked(inbox, rest, reply)
            else:
                self.sequence = int(reply["seq"])
        except (DisconnectedError, RefusedError) as error:
            self.failure = str(error)
        except (ValueError, KeyError, TypeError, AttributeError):
            # The end of the batch; or no answer of the server: readers of the rows see the inbox.
            self.failure = f"not an ack: {data[:80]!r}"

    def _acked(self, inbox: str, rest: list[str], reply: JsonObject) -> None:
        is_ack, seq, flow = reply["type"] == "ack", int(reply["seq"]), int(reply["msgs"])
        number, operation, _ = rest
        if not is_ack:
            raise DisconnectedError(f"not an ack: {reply}")
        if operation == "4" and inbox == self.pings:
            self.acked = self.taken = int(number)
        else:
            self.acked = max(self.acked, min(seq, self.sent))
            self.flow = max(1, min(flow, FLOW))
