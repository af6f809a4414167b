"""Sink mapper made of a function from rows to values, and of a frame around the values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from xml.parsers import expat

import numpy as np
import orjson
import pyarrow as pa

from mesh.mapping.events import Refusal
from mesh.mapping.xml_source import RefusedXmlError, document
from pyspark_nats.arrow import kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark_nats.arrow import Array


#: Characters that no document of XML has.
_NOT_XML: Final = "[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]"


@dataclass(frozen=True, slots=True)
class PayloadFrame:
    """Bytes around the events of a payload."""

    head: bytes = b""
    tail: bytes = b""
    between: bytes = b"\n"
    #: Around several events, inside of head and tail.
    first: bytes = b""
    last: bytes = b""

    def join(self, events: Sequence[bytes]) -> bytes:
        """The payload of some events of ``Encoder.encode``."""
        if len(events) == 1:
            return self.head + events[0] + self.tail
        inner = self.between.join(events)
        return b"".join((self.head, self.first, inner, self.last, self.tail))


class Encoder:
    """A sink mapper made of a function from rows to texts or binary values."""

    def __init__(
        self,
        encode: Callable[[pa.RecordBatch], Array],
        content_type: str,
        frame: PayloadFrame | None = None,
        *,
        is_grouping: bool = False,
        header: bytes = b"",
        objection: Callable[[bytes], str | None] | None = None,
        unfit: Callable[[pa.RecordBatch, Sequence[bytes]], Mapping[int, str]] | None = None,
    ) -> None:
        """Make a mapper.

        Args:
            encode: the value of each row.
            content_type: of the payloads.
            frame: what is around the events of a payload.
            is_grouping: events of one message share a payload.
            header: see ``SinkMapper``.
            objection: the reason against an event's value, which then is refused.
            unfit: from rows and their payloads to the reasons against those that the format can't
                have, by their numbers.
        """
        self._encode, self._objection, self._unfit = encode, objection, unfit
        self.content_type, self.header = content_type, header
        frame = frame or PayloadFrame()
        self._frame = frame
        self._ends = (b"", b"") if is_grouping else (frame.head, frame.tail)
        self.join = frame.join if is_grouping else None

    def encode(self, rows: pa.RecordBatch) -> list[bytes]:
        """See ``SinkMapper``."""
        if not rows.num_rows:
            return []
        values = self._encode(rows).cast(pa.binary())
        if any(self._ends):
            head, tail = (pa.scalar(one, pa.binary()) for one in self._ends)
            between = pa.scalar(b"", pa.binary())
            values = kernels.binary_join_element_wise(head, values, tail, between)
        payloads: list[bytes] = values.to_pylist()
        for row, why in self._unfit(rows, payloads).items() if self._unfit is not None else ():
            payloads[row] = Refusal(why.encode())
        if self._objection is None:
            return payloads
        return [one if isinstance(one, Refusal) else self._checked(one) for one in payloads]

    def _checked(self, event: bytes) -> bytes:
        assert self._objection is not None
        whole = event if self.join is None else self._frame.join([event])
        reason = self._objection(whole)
        return event if reason is None else Refusal(reason.encode())


def not_finite(rows: pa.RecordBatch, _: Sequence[bytes] = ()) -> dict[int, str]:
    """The reasons against rows with numbers that JSON does not have."""
    reasons: dict[int, str] = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if pa.types.is_floating(column.type):
            if np.isfinite(column.to_numpy(zero_copy_only=False)).all():
                continue
            wrong = kernels.fill_null(kernels.invert(kernels.is_finite(column)), False)
            for row in np.flatnonzero(wrong.to_numpy(zero_copy_only=False)).tolist():
                shown = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
                text = shown[str(column[row].as_py())]
                reasons.setdefault(row, f'attribute "{name}" is {text}, which JSON does not have')
    return reasons


def not_in_text(rows: pa.RecordBatch, payloads: Sequence[bytes]) -> dict[int, str]:
    """The reasons against rows with such numbers; inside of a text of JSON they are words."""
    reasons = not_finite(rows)
    return {row: why for row, why in reasons.items() if against_json(payloads[row]) is not None}


def not_in_xml(rows: pa.RecordBatch, payloads: Sequence[bytes]) -> dict[int, str]:
    """The reasons against rows whose payload has a character that XML does not have."""
    reasons: dict[int, str] = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if not pa.types.is_string(column.type):
            continue
        wrong = kernels.fill_null(kernels.match_substring_regex(column, _NOT_XML), False)
        for row in np.flatnonzero(wrong.to_numpy(zero_copy_only=False)).tolist():
            found = re.search(_NOT_XML, column[row].as_py())
            # A template may be without the attribute.
            if found is not None and found[0].encode() in payloads[row]:
                code = f"U+{ord(found[0]):04X}"
                reasons.setdefault(row, f'attribute "{name}" has {code}, which XML does not have')
    return reasons


def against_json(payload: bytes) -> str | None:
    """The reason why a payload is no JSON; None if it is."""
    try:
        orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        return f"the payload is not JSON: {error.msg}"
    return None


def against_xml(payload: bytes) -> str | None:
    """The reason why a payload is no XML; None if it is."""
    try:
        document(payload)
    except (expat.ExpatError, RefusedXmlError) as error:
        return f"the payload is not XML: {error}"
    return None
