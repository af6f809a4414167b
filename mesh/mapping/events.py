"""Rows of events that a parser has taken out of payloads one by one.

Interface of mappers: payloads to rows, and rows to payloads; pure, without I/O.
"""

from __future__ import annotations

import codecs
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import orjson
import pyarrow as pa

from mesh.functions.exact_json import is_exact, read_exact
from mesh.mapping.outside import value_for
from mesh.mapping.texts import may_be_changed, typed
from pyspark_nats.decode import rules
from pyspark_nats.decode.result import USUAL, DecodedPart, DecodeResult, assembled, part, without
from pyspark_nats.decode.values import WrongValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mesh.model.values import EventValues
    from pyspark_nats.decode.columns import Conversion
    from pyspark_nats.decode.result import MessageLimits

    #: The events of a payload by attribute, or the reason why one can't be read.
    Parsed = list[EventValues | str]

_MARK = codecs.BOM_UTF8
#: Those of UTF-16, whose octets no text in UTF-8 has.
_MARKS_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
#: Below, a double of a parser was not a whole number of more digits.
_WHOLE_MAX: Final = float(1 << 53)


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def without_mark(payload: bytes) -> bytes:
    """A text in UTF-8, without the byte order mark that some programs write before it.

    One with the mark of UTF-16 is read as such, if it is that.
    """
    if payload.startswith(_MARKS_16):
        try:
            return payload.decode("utf-16").encode()
        except UnicodeError:
            return payload
    return payload.removeprefix(_MARK)


def without_marks(payloads: Sequence[bytes]) -> Sequence[bytes]:
    """Payloads without byte order marks; the same ones if they have none."""
    if has_mark(b"".join(payloads)):
        return [without_mark(payload) for payload in payloads]
    return payloads


def has_mark(joined: bytes) -> bool:
    """Whether one of some payloads may have a byte order mark."""
    # One octet is found faster than three.
    return (_MARK[:1] in joined and _MARK in joined) or any(one in joined for one in _MARKS_16)


def parsed(parse: Callable[[int, bytes], Parsed], payloads: Sequence[bytes]) -> Iterator[Parsed]:
    """The events of each payload; any failure of the parser is a reason."""
    for number, payload in enumerate(payloads):
        try:
            yield parse(number, payload)
        except MemoryError:
            raise
        # A stranger's octets may fail in any way.
        except Exception as error:
            lines = str(error).splitlines()
            yield [f"the payload can't be read: {lines[0] if lines else type(error).__name__}"]


def of_values(
    parse: Callable[[int, bytes], Parsed],
    payloads: Sequence[bytes],
    schema: pa.Schema,
    missing: str,
    convert: Conversion = value_for,
    *,
    limits: MessageLimits = USUAL,
) -> DecodeResult:
    """Rows of events whose values have types, as in JSON.

    Args:
        parse: from the number and the octets of a payload to its events.
        payloads: any octets.
        schema: of the rows.
        missing: "error" or "null".
        convert: for values of other types.
        limits: of one message.
    """
    errors: list[tuple[int, int, str]] = []
    events = parsed(parse, payloads)
    parts = rules.decode_each(
        pa.array(payloads, pa.binary()),
        np.arange(len(payloads)),
        schema,
        missing,
        errors,
        lambda _: next(events),
        limits,
        convert,
    )
    return assembled(parts, schema, errors, len(payloads))


def merged(
    several: Sequence[tuple[Any, DecodeResult]], schema: pa.Schema, taken: int
) -> DecodeResult:
    """The results of some of the messages each as one; ``several`` has their numbers, as int64."""
    parts = [
        DecodedPart(result.rows, at[result.message], result.index, result.event_time_ms)
        for at, result in several
        if result.rows.num_rows
    ]
    errors = [
        (int(at[number]), index, why)
        for at, result in several
        for number, index, why in result.errors
    ]
    return assembled(parts, schema, errors, taken)


def replaced(original: DecodeResult, numbers: Sequence[int], patch: DecodeResult) -> DecodeResult:
    """A result of messages, but with ``patch`` for those with the numbers, in order."""
    at, of_others = np.array(numbers, np.int64), set(numbers)
    keep = ~np.isin(original.message, at)
    rest = replace(
        original,
        rows=original.rows.filter(pa.array(keep)),
        message=original.message[keep],
        index=original.index[keep],
        event_time_ms=original.event_time_ms.filter(pa.array(keep)),
        errors=[error for error in original.errors if error[0] not in of_others],
    )
    everything = np.arange(original.taken)
    return merged([(everything, rest), (at, patch)], original.rows.schema, original.taken)


class JsonEvents:
    """Rows of JSON documents, in which numbers that are read as texts have their digits."""

    def __init__(
        self, schema: pa.Schema, missing: str, events_of: Callable[[Any], Parsed],
        *, are_plain: bool = True,
    ) -> None:  # fmt: skip
        """The reader.

        Args:
            schema: of the rows.
            missing: "error" or "null".
            events_of: takes new dicts of attributes out of a document.
            are_plain: whether the parser's values of the first payloads are probably exact.
        """
        self._schema, self._missing, self._events_of = schema, missing, events_of
        self._texts = [field.name for field in schema if pa.types.is_string(field.type)]
        self._reals = [field.name for field in schema if pa.types.is_floating(field.type)]
        #: Whether the parser's values of the last payloads were exact.
        self._was_plain = are_plain

    def decode(self, payloads: Sequence[bytes]) -> DecodeResult:
        """See ``SourceMapper``."""
        if self._was_plain:
            is_odd = False

            def convert(value: Any, kind: Any) -> Any:
                nonlocal is_odd
                is_odd = True
                return value

            result = of_values(self._read_plain, payloads, self._schema, self._missing, convert)
            columns = [result.rows.column(name) for name in self._reals]
            if not is_odd and not any(may_be_changed(one, pa.float64()) for one in columns):
                return result
        self._was_plain = True
        return of_values(self.read, payloads, self._schema, self._missing)

    def read(self, _: int, payload: bytes) -> Parsed:
        """The events of a payload, whose values are exact."""
        try:
            document = orjson.loads(payload)
        except orjson.JSONDecodeError:
            return self._read_odd(payload)
        events = self._events_of(document)
        if self._are_plain(events):
            return events
        self._was_plain = False
        if not is_exact(payload, document):
            return self._events_of(read_exact(payload))
        for event in events:
            if isinstance(event, dict):
                self._write_texts(event)
        return events

    def _read_plain(self, _: int, payload: bytes) -> Parsed:
        try:
            document = orjson.loads(payload)
        except orjson.JSONDecodeError:
            return self._read_odd(payload)
        return self._events_of(document)

    def _read_odd(self, payload: bytes) -> Parsed:
        """The events of a payload that the parser refuses: it may have a document in each line."""
        payload = without_mark(payload)
        try:
            return self._events_of(read_exact(payload))
        except orjson.JSONDecodeError as error:
            lines = [line for line in payload.split(b"\n") if line.strip()]
            if len(lines) < 2 or not _is_json(lines[0]):
                return [f"not JSON: {error.msg}"]
        return [event for line in lines for event in self._of_line(line)]

    def _of_line(self, line: bytes) -> Parsed:
        try:
            return self._events_of(read_exact(line))
        except orjson.JSONDecodeError as error:
            return [f"not JSON: {error.msg}"]

    def _are_plain(self, events: Parsed) -> bool:
        """Whether the parser's values are exact."""
        for event in events:
            if isinstance(event, str):
                continue
            for name in self._texts:
                value = event.get(name)
                if value is not None and type(value) is not str:
                    return False
            for name in self._reals:
                value = event.get(name)
                if type(value) is float and not -_WHOLE_MAX < value < _WHOLE_MAX:
                    return False
        return True

    def _write_texts(self, event: EventValues) -> None:
        for name in self._texts:
            value = event.get(name)
            if value is not None and type(value) is not str:
                event[name] = orjson.dumps(value).decode()


def of_texts(
    parse: Callable[[int, bytes], Parsed],
    payloads: Sequence[bytes],
    schema: pa.Schema,
    missing: str,
    *,
    wrong: str = "error",
) -> DecodeResult:
    """Rows of events whose values are texts or None, which are converted column by column.

    ``missing`` and ``wrong`` are the meanings of an attribute that is missing, and of a text that
    its type can't have: "error" or "null".
    """
    errors: list[tuple[int, int, str]] = []
    columns: list[list[str | None]] = [[] for _ in schema]
    targets = list(zip(columns, schema.names, strict=True))
    message: list[int] = []
    index: list[int] = []
    #: Attributes that each event has.
    names = schema.names if missing == "error" else []
    for number, events in enumerate(parsed(parse, payloads)):
        for place, event in enumerate(events):
            reason = event if isinstance(event, str) else _missing(event, names)
            if reason is not None:
                errors.append((number, place, reason))
                continue
            assert isinstance(event, dict)
            for column, name in targets:
                column.append(event.get(name))
            message.append(number)
            index.append(place)
    texts = [pa.array(column, pa.string()) for column in columns]
    return of_text_columns(
        texts,
        np.array(message, np.int64),
        np.array(index, np.int64),
        schema,
        errors,
        len(payloads),
        wrong=wrong,
    )


def of_text_columns(
    texts: Sequence[Any],
    message: Any,
    index: Any,
    schema: pa.Schema,
    errors: list[tuple[int, int, str]],
    taken: int,
    *,
    wrong: str = "error",
) -> DecodeResult:
    """Rows of columns of texts, without those of which a value is of the wrong type.

    A column may be of its attribute's type already; see ``of_texts`` for ``wrong``.
    """
    if not len(message):
        return assembled([], schema, errors, taken)
    columns = []
    reasons: dict[int, str] = {}
    for field, column in zip(schema, texts, strict=True):
        values, others = typed(column, field.type)
        columns.append(values)
        for row in others if wrong == "error" else ():
            why = WrongValueError(column[row].as_py(), field.type).reason(field.name)
            reasons.setdefault(row, why)
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    return without(assembled([part(rows, message, index)], schema, errors, taken), reasons)


def _missing(event: EventValues, names: Sequence[str]) -> str | None:
    for name in names:
        if name not in event:
            return f'attribute "{name}" is missing'
    return None


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
