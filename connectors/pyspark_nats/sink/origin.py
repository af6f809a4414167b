"""Identity of the writer of a batch, as recorded in markers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """Identity of a writer."""

    #: Names this run of the batch; "" when it is not known.
    run: str = ""
    #: The Spark partition; -1 when it is not known.
    task: int = -1
    #: The batch, when positions are counted by batch and message; None for other positions.
    batch_id: int | None = None
