"""Identity of the writer of a batch, as recorded in markers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """Identity of a writer."""

    #: Name of this run of the batch; "" if unknown.
    run: str = ""
    #: The Spark partition; -1 if unknown.
    task: int = -1
    #: The batch, if positions are counted by batch and message; None for other positions.
    batch_id: int | None = None
    #: When the writer began, by a server's clock, ms since 1970: it writes to no later stream.
    began_ms: int | None = None
    #: The server's time before which no input of this run was stored, ms since 1970; 0 if unknown.
    since_ms: int = 0
