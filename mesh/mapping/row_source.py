"""Rows of databases as events: exact values for the types of a stream, or a reason.

The payload of a row is a JSON object by column.  Numbers have all their digits, and what JSON has
no value for is the text that the database shows.

=============  =====================================================================
attribute      is read from
=============  =====================================================================
string         text; a number with its digits; true and false
int, long      a number without a fraction, in range: 5, 5.00
float, double  the nearest number, but not another whole one: 9007199254740993;
               the texts NaN, Infinity and -Infinity
bool           true, false, 1 and 0: MySQL's BOOLEAN is a number
=============  =====================================================================

A source names the columns that it could not read in ``REFUSED``, with the reasons.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
import orjson
import pyarrow as pa

from mesh.functions.jsonpaths import PathNotFoundError, parse
from mesh.mapping.events import JsonEvents, replaced
from mesh.mapping.json_source import PlainSource, rooted
from mesh.mapping.texts import large
from pyspark_nats.decode.result import DecodeResult, assembled, part
from pyspark_nats.decode.values import article, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mesh.model.values import EventValues

#: Key of a payload with lists of columns by reason; ``EVERY`` stands for the whole row.
REFUSED: Final = "@refused"
EVERY: Final = "*"
_MARK: Final = REFUSED.encode()
_SHOWN_MAX: Final = 60
_NUMBER: Final = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*\Z")
_WORDS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_BOOLS: Final = {"true": True, "1": True, "false": False, "0": False}
#: Below, each whole number is one of the type.
_WHOLE_DOUBLES: Final = 1 << 53
_WHOLE_FLOATS: Final = 1 << 24
#: Digits of a whole number that is of 64 bits in any case.
_DIGITS: Final = 18


class Number(float):
    """A number with the digits that it was written with."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Number:
        """The number of a JSON literal."""
        number = super().__new__(cls, text)
        number.text = text
        return number


class RefusedValueError(ValueError):
    """The attribute has no such value; the message is what follows its name."""


class _Refused(dict[str, Any]):
    """In place of a value that the source could not read: any use of it raises the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self._reason = reason

    def refuse(self, *_: Any) -> NoReturn:
        """Raise the reason."""
        raise RefusedValueError(self._reason)

    __contains__ = __getitem__ = items = refuse


class RowSource:
    """See ``SourceMapper``."""

    def __init__(
        self, schema: pa.Schema, missing: str, places: Mapping[str, str], *,
        is_path: bool = False, casts: bool = False,
    ) -> None:  # fmt: skip
        """The mapping.

        Args:
            schema: of the rows.
            missing: "error" or "null".
            places: by attribute the column, or a JSON path.
            is_path: whether they are paths.
            casts: whether texts are read as numbers and bools.
        """
        self._schema, self._missing, self._casts = schema, missing, casts
        self._picks = [
            (field.name, _pick(places[field.name], is_path), field.type) for field in schema
        ]
        candidates = [_column_of(places[name], is_path) for name in schema.names]
        columns = [name for name in candidates if name is not None]
        #: As the columns are named; None if an attribute is inside of one.
        self._columns: pa.Schema | None = None
        if len(set(columns)) == len(schema):
            fields = (field.with_name(label) for field, label in zip(schema, columns, strict=True))
            self._columns = pa.schema(fields)

    def decode(
        self, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None = None
    ) -> DecodeResult:
        """See ``SourceMapper``."""
        return self._at_once(payloads) or self._one_by_one(payloads)

    def _at_once(self, payloads: Sequence[bytes]) -> DecodeResult | None:
        """All rows by the readers of JSON, but those whose values these may have in another way.

        None if the first row, which the others are like, has such values.
        """
        decode = self._reader(payloads[0]) if payloads else None
        if decode is None:
            return None
        joined = b"".join(payloads)
        if b"\n" in joined:
            return None
        result = decode(payloads)
        odd = {number for number, _, _ in result.errors}
        if _MARK in joined:
            odd |= {number for number, payload in enumerate(payloads) if _MARK in payload}
        odd |= set(result.message[large(result.rows)].tolist())
        result = replace(result, rows=result.rows.rename_columns(self._schema.names))
        if not odd:
            return result
        numbers = sorted(odd)
        again = self._one_by_one([payloads[number] for number in numbers])
        return replaced(result, numbers, again)

    def _reader(self, payload: bytes) -> Callable[[Sequence[bytes]], DecodeResult] | None:
        """The reader of JSON for rows like this one; None if it has values that need their own."""
        if self._columns is None:
            return None
        try:
            document = orjson.loads(payload)
        except orjson.JSONDecodeError:
            return None
        if not isinstance(document, dict):
            return None
        pairs = [(type(document.get(field.name)), field.type) for field in self._columns]
        odd = {kind for actual, kind in pairs if actual not in (type(None), *_types_of(kind))}
        if not odd:
            return PlainSource(self._columns, self._missing, "application/json").strict
        if odd != {pa.string()}:
            return None
        events = JsonEvents(self._columns, self._missing, lambda one: [one], are_plain=False)
        return events.decode

    def _one_by_one(self, payloads: Sequence[bytes]) -> DecodeResult:
        errors: list[tuple[int, int, str]] = []
        rows: list[list[Any]] = []
        numbers: list[int] = []
        for number, payload in enumerate(payloads):
            try:
                rows.append(self._row(_document(payload)))
                numbers.append(number)
            except RefusedValueError as error:
                errors.append((number, 0, str(error)))
            except (ValueError, RecursionError):
                errors.append((number, 0, "the payload is no JSON object of a row"))
        if not rows:
            return assembled([], self._schema, errors, len(payloads))
        columns = [
            pa.array(column, field.type)
            for column, field in zip(zip(*rows, strict=True), self._schema, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        at = np.array(numbers, np.int64)
        batch_part = part(batch, at, np.zeros_like(at))
        return assembled([batch_part], self._schema, errors, len(payloads))

    def _row(self, document: EventValues) -> list[Any]:
        values = []
        for name, pick, kind in self._picks:
            try:
                value = pick(document)
                if isinstance(value, _Refused):
                    value.refuse()
                values.append(None if value is None else value_for(value, kind, self._casts))
            except PathNotFoundError:
                if self._missing == "error":
                    raise RefusedValueError(f'attribute "{name}" is missing') from None
                values.append(None)
            except RefusedValueError as error:
                raise RefusedValueError(f'attribute "{name}" {error}') from None
        return values


def _types_of(kind: pa.DataType) -> tuple[type, ...]:
    """The types of JSON values that need no conversion."""
    if pa.types.is_floating(kind):
        return (int, float)
    return {pa.string(): (str,), pa.bool_(): (bool,)}.get(kind, (int,))


def _column_of(place: str, is_path: bool) -> str | None:
    """The column that a place is, None for a path into one."""
    names = parse(rooted(place)).names if is_path else (place,)
    return names[0] if names is not None and len(names) == 1 else None


def _document(payload: bytes) -> EventValues:
    document = _parsed(payload)
    if not isinstance(document, dict):
        raise RefusedValueError("the payload is no JSON object of a row")
    reasons = document.pop(REFUSED, None)
    if reasons:
        for reason, names in reasons.items():
            if EVERY in names:
                raise RefusedValueError(reason)
            document |= dict.fromkeys(names, _Refused(reason))
    return document


def _parsed(text: str | bytes) -> Any:
    return json.loads(text, parse_float=Number, parse_int=_whole)


def _whole(text: str) -> int | Number:
    return int(text) if len(text) <= _DIGITS else Number(text)


def _pick(place: str, is_path: bool) -> Callable[[EventValues], Any]:
    if is_path:
        path = parse(rooted(place))

        def read(document: EventValues) -> Any:
            try:
                return path.read(document)
            except PathNotFoundError:
                # A column of JSON is a text, and the path may lead into it.
                return path.read({name: _inside(value) for name, value in document.items()})

        return read

    def get(document: EventValues) -> Any:
        if place not in document:
            raise PathNotFoundError
        return document[place]

    return get


def _inside(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return _parsed(value)
        except (ValueError, RecursionError):
            return value
    return value


def value_for(value: Any, kind: pa.DataType, casts: bool = False) -> Any:
    """The value of an attribute of type ``kind``.

    Args:
        value: of a payload, other than null; numbers with a fraction or many digits are ``Number``.
        kind: of the attribute.
        casts: whether texts are read as numbers and bools.

    Raises:
        RefusedValueError: it is no such value, or not exactly.
    """
    if pa.types.is_string(kind):
        return _text(value)
    if isinstance(value, str) and casts and not pa.types.is_boolean(kind):
        value = Number(value.strip()) if _NUMBER.match(value) else value
    if pa.types.is_boolean(kind):
        if isinstance(value, int) and value in (0, 1):
            return bool(value)
        if isinstance(value, str) and casts and value.strip().lower() in _BOOLS:
            return _BOOLS[value.strip().lower()]
        raise _wrong(value, kind)
    if pa.types.is_floating(kind) and isinstance(value, str) and value in _WORDS:
        return _WORDS[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(value, kind)
    digits = value.text if isinstance(value, Number) else str(value)
    number = _integer(digits, kind) if pa.types.is_integer(kind) else _floating(digits, kind)
    if number is None:
        name = article(type_name(kind))
        raise RefusedValueError(f"is {_shown(value)}, which {name} can't hold exactly")
    return number


def _integer(digits: str, kind: pa.DataType) -> int | None:
    """The integer, None for one with a fraction or out of range."""
    exact = Decimal(digits)
    # A short text may be a number of a million digits.
    if exact.adjusted() > _DIGITS or exact != exact.to_integral_value():
        return None
    number, limit = int(exact), 1 << kind.bit_width - 1
    return number if -limit <= number < limit else None


def _floating(digits: str, kind: pa.DataType) -> float | None:
    """The nearest number; None beyond the range, and for another whole number."""
    wide = number = float(digits)
    shown, limit = repr(number), _WHOLE_DOUBLES
    if pa.types.is_float32(kind):
        with np.errstate(over="ignore"):
            small = np.float32(digits)
        number, shown, limit = float(small), str(small), _WHOLE_FLOATS
    if not math.isfinite(number):
        return None
    if abs(number) < limit:
        return number
    exact = Decimal(digits)
    # A column of floating numbers shows fewer digits than its large numbers have.
    same = [Decimal(number), Decimal(shown)]
    same += [Decimal(repr(wide))] if number == wide else []
    return number if exact in same or exact != exact.to_integral_value() else None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Number):
        return value.text
    return orjson.dumps(value, default=_literal).decode()


def _literal(value: Any) -> Any:
    if isinstance(value, _Refused):
        value.refuse()
    return orjson.Fragment(value.text)


def _wrong(value: Any, kind: pa.DataType) -> RefusedValueError:
    return RefusedValueError(f"is {_shown(value)}, not {article(type_name(kind))}")


def _shown(value: Any) -> str:
    text = f'"{value}"' if isinstance(value, str) else _text(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."
