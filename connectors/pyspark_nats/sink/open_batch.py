"""State of a producer's ingest batch between two runs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

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
    #: Why the server takes no more rows of it; empty as far as is known.
    failure: str = ""

    def reply(self, inbox: str) -> str:
        """The reply subject of its messages, up to their number; a gap ends the batch."""
        return f"{inbox}.{self.batch_id}.{FLOW}.fail"
