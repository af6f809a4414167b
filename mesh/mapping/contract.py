"""Interface of mappers: payloads to rows, and rows to payloads; pure, without I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from pyspark_nats.decode.result import DecodeResult


class Refusal(bytes):
    """In place of a payload: the reason why an event has none, as UTF-8."""


class SourceMapper(Protocol):
    """Decodes payloads; no payload raises an error.

    One with values of several lines has ``is_open`` as well: whether a line ends inside of a value.
    """

    def decode(
        self, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None = None
    ) -> DecodeResult:
        """The readable events of all payloads, and an error by payload and index for the others."""
        ...


class SinkMapper(Protocol):
    """Encodes rows.

    One that groups events has ``join`` as well: from what ``encode`` gave for some events to their
    payload.  ``header``, if it has one, begins each payload, or each file of a sink of files.
    """

    #: Of the payloads, for transports that name it.
    content_type: str

    def encode(self, rows: pa.RecordBatch) -> list[bytes]:
        """One payload for each row, or a ``Refusal``."""
        ...
