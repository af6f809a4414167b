"""Payloads of text as rows: CSV, lines of ``name:value``, and maps of keys.

Attributes from transport properties, ``@attributes(a='trp:name')``, beside those of payloads.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from mesh.connect.spec import PROPERTY
from mesh.functions.patterns import compiled
from mesh.mapping.events import (
    JsonEvents,
    has_mark,
    merged,
    of_text_columns,
    of_texts,
    parsed,
    without_marks,
)
from mesh.mapping.outside import value_for
from mesh.mapping.texts import may_be_changed, typed
from pyspark_nats.decode.result import DecodeResult, assembled, part, without
from pyspark_nats.decode.values import WrongValueError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.mapping.events import Parsed, SourceMapper
    from mesh.model.values import EventValues


#: ``name:"text",``, ``name:'text',`` or ``name:value,`` in a line.
_LINE: Final = re.compile(
    r"""\s*([A-Za-z_]\w*)\s*:\s*(?:(["'])(.*)\2|(.*?))\s*,?\s*\Z""", re.DOTALL
)
#: A number whose digits are in groups, as in 1,000,000.5.
_GROUPED: Final = re.compile(r"\s*[+-]?\d{1,3}(?:,\d{3})+(?!\d|,)")
_GROUP: Final = re.compile(r"(\w+)(?:\[(\d+)\])?\Z")
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_CLOSED: Final = re.compile(r'"(?:[^"]|"")*+"')
_KEYS_MAX: Final = 10_000
_NULL: Final = "null"
#: Octets that are not UTF-8, as ``_text_of`` has them.
_ODD: Final = re.compile(r"[\udc80-\udcff]")
_NOT_UTF8: Final = "the {} is not in UTF-8"
_OPEN_QUOTE: Final = "a quote is not closed; the lines after it are not read"
_STRAY_QUOTE: Final = "a value without quotes has a quote in it, or text follows a quote"


class CsvSource:
    """Values by position, one event a line; by Arrow's reader where it accepts all lines."""

    def __init__(
        self,
        schema: pa.Schema,
        *,
        delimiter: str = ",",
        has_header: bool = False,
        positions: Sequence[int] = (),
        wrong: str = "error",
    ) -> None:
        """The mapping; ``positions`` are the columns of the attributes, those in order if empty.

        ``wrong``: the meaning of a value that is missing or that its attribute can't have, "error"
        or "null".
        """
        self._wrong = wrong
        self._schema = schema
        self._delimiter = {"\\t": "\t"}.get(delimiter, delimiter)
        if len(self._delimiter) != 1 or self._delimiter in '"\r\n':
            raise ValueError(f'delimiter "{delimiter}" of csv is not one character')
        self._field = _field_of(self._delimiter)
        #: The first line of a file for Excel, which names the delimiter.
        self._naming = re.compile(
            rf'"?(?:sep|SEP)={re.escape(self._delimiter)}"?[ \t]*(?:\r\n|\n|\r|\Z)'
        )
        self._reading = arrow_csv.ReadOptions(column_names=schema.names, use_threads=False)
        self._parsing = arrow_csv.ParseOptions(
            delimiter=self._delimiter, quote_char=False, ignore_empty_lines=False
        )
        self._converting = arrow_csv.ConvertOptions(
            column_types=schema,
            null_values=[_NULL],
            strings_can_be_null=True,
            true_values=["true", "TRUE", "True", "1"],
            false_values=["false", "FALSE", "False", "0"],
        )
        self._names = schema.names
        self._has_header = has_header
        self._positions = tuple(positions) or tuple(range(len(schema)))
        self._width = None if positions else len(schema)

    def decode(
        self, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None = None
    ) -> DecodeResult:
        """See ``SourceMapper``."""
        return self._at_once(payloads) or self._line_by_line(without_marks(payloads))

    def is_open(self, line: bytes) -> bool:
        """Whether a line ends inside of a value in quotes."""
        rows = self._rows(line.decode(errors="replace"))
        return bool(rows) and rows[-1][1] == _OPEN_QUOTE

    def _line_by_line(self, payloads: Sequence[bytes]) -> DecodeResult:
        """All lines; errors of payloads of several lines begin with the line's number."""
        lines: list[list[tuple[int, Any]]] = [[] for _ in payloads]

        def events(number: int, payload: bytes) -> Parsed:
            lines[number] = pairs = self._events(payload)
            return [event for _, event in pairs]

        result = of_texts(events, payloads, self._schema, self._wrong, wrong=self._wrong)
        errors = [
            (
                n,
                at,
                f"line {lines[n][at][0]}: {why}"
                if at < len(lines[n]) and b"\n" in payloads[n]
                else why,
            )
            for n, at, why in result.errors
        ]
        return replace(result, errors=errors)

    def _at_once(self, payloads: Sequence[bytes]) -> DecodeResult | None:
        """All lines by Arrow; None if a line needs another reader, or is wrong."""
        if self._has_header or self._width is None or not payloads:
            return None
        joined = b"\n".join(payloads)
        if has_mark(joined):
            payloads = without_marks(payloads)
            joined = b"\n".join(payloads)
        counts = None
        table = None
        # A payload is a line, in general: then the reader counts the rows, and nothing else has to.
        if b"\n" not in payloads[0] and payloads[-1][-1:] not in (b"", b"\n"):
            table = self._table(joined)
            if table is None:
                return None
        total = len(payloads)
        if table is None or table.num_rows != total:
            lines = [payload.removesuffix(b"\n") for payload in payloads]
            counts = np.array([line.count(b"\n") + 1 for line in lines])
            total = int(counts.sum())
            table = self._table(b"\n".join(lines))
            if table is None or table.num_rows != total:
                return None
        message = np.arange(len(payloads), dtype=np.int64)
        index = np.zeros(total, np.int64)
        if counts is not None:
            message = np.repeat(message, counts)
            index = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = table.combine_chunks().to_batches()
        if any(may_be_changed(column, column.type) for batch in rows for column in batch.columns):
            return None
        return assembled(
            [part(rows[0], message, index)] if rows else [], self._schema, [], len(payloads)
        )

    def _table(self, joined: bytes) -> pa.Table | None:
        """Lines by Arrow; None if it would read one in another way, or refuses one."""
        if any(mark in joined for mark in (b'"', b"\r", b"\x00", b"sep=", b"SEP=")):
            return None
        # An empty line is no event, but to Arrow an empty value of a stream with one attribute.
        if self._width == 1 and b"\n\n" in b"\n%b\n" % joined:
            return None
        # Arrow reads whole numbers of base 16.
        if any(mark[1:] in joined and mark in joined for mark in (b"0x", b"0X")):
            return None
        try:
            return arrow_csv.read_csv(
                pa.BufferReader(joined),  # type: ignore[arg-type]  # any file of Arrow
                read_options=self._reading,
                parse_options=self._parsing,
                convert_options=self._converting,
            )
        except (pa.ArrowInvalid, pa.ArrowKeyError, OverflowError):
            return None

    def _events(self, payload: bytes) -> list[tuple[int, EventValues | str]]:
        """The events, or the reasons why there is none, each with the number of its line."""
        text, is_odd = _text_of(payload)
        if naming := self._naming.match(text):
            # An empty line in its place, as lines have numbers.
            text = f"\n{text[naming.end() :]}"
            if not text.strip():
                return []
        rows = self._rows(text)
        if is_odd or "\x00" in text:
            rows = [(line, _readable(row)) for line, row in rows]
        places: Sequence[int] = self._positions
        width = self._width
        if self._has_header and rows:
            (_, head), *rows = rows
            head_places = self._places_of(head)
            if isinstance(head_places, str):
                return [(1, head_places)]
            places, width = head_places or places, None if head_places else width
        last = max(places)
        return [(line, self._event(row, places, width, last)) for line, row in rows] or [
            (1, "no values")
        ]

    def _rows(self, text: str) -> list[tuple[int, list[str | None] | str]]:
        """The values of each line that is not empty, or the reason against it, with its number."""
        if '"' not in text:
            mark = self._delimiter
            split = _LINE_END.split(text) if "\r" in text else text.split("\n")
            lines = enumerate(split, 1)
            if _NULL not in text:
                return [(n, one.split(mark)) for n, one in lines if one]  # type: ignore[misc]
            return [
                (n, [None if v == _NULL else v for v in one.split(mark)]) for n, one in lines if one
            ]
        rows: list[tuple[int, list[str | None] | str]] = []
        row: list[str | None] = []
        line = first = 1
        at = 0
        match, delimiter = self._field.match, self._delimiter
        while at < len(text) or row:
            field_match = match(text, at)
            if field_match is None:
                is_open = text[at : at + 1] == '"' and not _CLOSED.match(text, at)
                if is_open:
                    rows.append((first, _OPEN_QUOTE))
                    break
                rows.append((first, _STRAY_QUOTE))
                end = _LINE_END.search(text, at)
                if end is None:
                    break
                at, row = end.end(), []
                line = first = line + 1
                continue
            quoted, plain, end_of = field_match.groups()
            if quoted is None:
                row.append(None if plain == _NULL else plain)
            else:
                row.append(quoted.replace('""', '"'))
                if "\n" in quoted or "\r" in quoted:
                    line += len(_LINE_END.findall(quoted))
            at = field_match.end()
            if end_of != delimiter:
                line += 1
                if row != [""] or quoted is not None:
                    rows.append((first, row))
                row, first = [], line
        return rows

    def _places_of(self, head: list[str | None] | str) -> Sequence[int] | str:
        """The column of each attribute by a header, none if it has other names; or a reason.

        A header that has the name of an attribute has those of all, exactly.
        """
        if isinstance(head, str):
            return head
        if self._width is None:
            return ()
        names = self._schema.names
        if all(head.count(name) == 1 for name in names):
            return [head.index(name) for name in names]
        plain = [(name or _NULL).strip().casefold() for name in head]
        like = [
            (at, plain.index(name.casefold()))
            for at, name in enumerate(names)
            if name.casefold() in plain
        ]
        if all(at == place for at, place in like) and len(set(plain)) == len(plain):
            return ()
        missing = next(name for name in names if head.count(name) != 1)
        shown = ", ".join(map(str, head))
        if missing in head:
            return f'the header has attribute "{missing}" more than once: {shown}'
        return f'the header has no "{missing}", spelled as in the stream: {shown}'

    def _event(
        self, row: list[str | None] | str, places: Sequence[int], width: int | None, last: int
    ) -> EventValues | str:
        if isinstance(row, str):
            return row
        if self._wrong == "null":
            pairs = zip(self._names, places, strict=True)
            return {name: row[at] for name, at in pairs if at < len(row)}
        if width is not None and len(row) != width:
            return f"the line has {len(row)} values, the stream {width} attributes"
        if last >= len(row):
            return f"the line has {len(row)} values, and value {last} is used"
        return {name: row[at] for name, at in zip(self._names, places, strict=True)}


def _text_of(payload: bytes) -> tuple[str, bool]:
    """The text of a payload, and whether it has octets that are not UTF-8."""
    try:
        return payload.decode(), False
    except UnicodeDecodeError:
        return payload.decode(errors="surrogateescape"), True


def _readable(row: list[str | None] | str) -> list[str | None] | str:
    """The values of a line of CSV; a reason if one has octets that no text has."""
    for value in row if isinstance(row, list) else ():
        if value is not None and "\x00" in value:
            return "the line holds a NUL character"
        if value is not None and _ODD.search(value):
            return _NOT_UTF8.format("line")
    return row


def _field_of(delimiter: str) -> re.Pattern[str]:
    """A value in quotes, or one without, and its end."""
    mark = re.escape(delimiter)
    return re.compile(rf'(?:"((?:[^"]|"")*+)"|([^"\r\n{mark}]*+))({mark}|\r\n|\n|\r|\Z)')


class TextSource:
    """Lines of ``name:value``; or regular expressions whose groups are the attributes."""

    def __init__(
        self,
        schema: pa.Schema,
        missing: str,
        *,
        delimiter: str,
        patterns: Mapping[str, str] | None = None,
        groups: Mapping[str, str] | None = None,
    ) -> None:
        """The mapping; ``groups`` are ``A[1]``, or ``A``, by attribute, ``patterns`` Java's."""
        self._schema, self._missing, self._delimiter = schema, missing, delimiter
        self._patterns = {name: compiled(text) for name, text in (patterns or {}).items()}
        self._groups = {name: _group_of(text) for name, text in (groups or {}).items()}
        self._texts = {field.name for field in schema if pa.types.is_string(field.type)}

    def decode(
        self, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None = None
    ) -> DecodeResult:
        """See ``SourceMapper``."""
        return of_texts(self._events, without_marks(payloads), self._schema, self._missing)

    def _events(self, number: int, payload: bytes) -> Parsed:
        events: Parsed = []
        block: list[str] = []
        text, is_odd = _text_of(payload)
        for line in [*text.split("\n"), self._delimiter]:
            if line.rstrip("\r") != self._delimiter:
                block.append(line)
                continue
            if any(one.strip() for one in block):
                event_text = "\n".join(block)
                is_read = not (is_odd and _ODD.search(event_text))
                events.append(self._event(event_text) if is_read else _NOT_UTF8.format("event"))
            block = []
        return events or ["no event"]

    def _event(self, text: str) -> EventValues | str:
        if self._groups:
            matches = {name: pattern.search(text) for name, pattern in self._patterns.items()}
            event: EventValues = {}
            for name, (pattern, group) in self._groups.items():
                match = matches.get(pattern)
                if match is not None:
                    event[name] = self._value(name, match.group(group))
            return event
        event = {}
        for line in text.split("\n"):
            if not line.strip():
                continue
            match = _LINE.match(line)
            if match is None:
                return f'a line is no name:value: "{line[:80]}"'
            name, quoted, plain = match[1], match[3], match[4]
            value = quoted if quoted is not None else None if plain == _NULL else plain
            event[name] = self._value(name, value)
        return event

    def _value(self, name: str, text: str | None) -> str | None:
        """A value as a text that its type reads; as in the original, 1,000 is a number.

        1,5 is none: a comma may be a decimal point where the text was written.
        """
        if text is None or name in self._texts or not _GROUPED.match(text):
            return text
        return text.replace(",", "")


def _group_of(text: str) -> tuple[str, int]:
    match = _GROUP.match(text)
    if match is None:
        raise ValueError(f'"{text}" is no group such as A[1]')
    return match[1], int(match[2] or 1)


class KeyValueSource:
    """Maps: JSON objects with typed values, or forms, whose values are texts."""

    def __init__(
        self, schema: pa.Schema, missing: str, keys: Mapping[str, str], *, casts: bool = False
    ) -> None:
        """The mapping; ``keys`` are the attributes' keys, ``casts``: convert texts to types."""
        self._schema, self._missing, self._keys, self._casts = schema, missing, keys, casts
        self._json = JsonEvents(schema, missing, self._events_of)

    def decode(
        self, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None = None
    ) -> DecodeResult:
        """See ``SourceMapper``."""
        payloads = without_marks(payloads)
        is_json = np.array([payload.lstrip()[:1] in (b"{", b"[") for payload in payloads], bool)
        if is_json.all():
            return self._maps(payloads)
        several = []
        for mask, decode in ((is_json, self._maps), (~is_json, self._forms)):
            at = np.flatnonzero(mask)
            if len(at):
                several.append((at, decode([payloads[number] for number in at.tolist()])))
        return merged(several, self._schema, len(payloads))

    def _maps(self, payloads: Sequence[bytes]) -> DecodeResult:
        if not self._casts:
            return self._json.decode(payloads)
        result = self._cast(payloads)
        return result or of_texts(self._texts, payloads, self._schema, self._missing)

    def _forms(self, payloads: Sequence[bytes]) -> DecodeResult:
        return of_texts(self._form, payloads, self._schema, self._missing)

    def _cast(self, payloads: Sequence[bytes]) -> DecodeResult | None:
        """Maps whose values are texts where those of the first one are; None if one has others."""
        first = next(parsed(self._json.read, payloads[:1]), [])
        if not first or not isinstance(first[0], dict):
            return None
        schema = pa.schema(
            field.with_type(pa.string()) if isinstance(first[0].get(field.name), str) else field
            for field in self._schema
        )
        result = JsonEvents(schema, self._missing, self._events_of).decode(payloads)
        if result.errors:
            return None
        return of_text_columns(
            result.rows.columns, result.message, result.index, self._schema, [], len(payloads)
        )

    def _events_of(self, document: object) -> Parsed:
        several = document if isinstance(document, list) else [document]
        return [self._named(one) if isinstance(one, dict) else "no map" for one in several]

    def _named(self, values: EventValues) -> EventValues:
        return {name: values[key] for name, key in self._keys.items() if key in values}

    def _texts(self, number: int, payload: bytes) -> Parsed:
        return [
            {name: value_for(value, pa.string()) for name, value in event.items()}
            if isinstance(event, dict)
            else event
            for event in self._json.read(number, payload)
        ]

    def _form(self, _: int, payload: bytes) -> Parsed:
        pairs = parse_qsl(
            payload.decode(), keep_blank_values=True, strict_parsing=True,
            errors="strict", max_num_fields=_KEYS_MAX,
        )  # fmt: skip
        form = dict(pairs)
        return [{name: form[key] for name, key in self._keys.items() if key in form}]


def split(paths: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Paths in payloads by attribute, and names of transport properties by attribute."""
    body_paths = {name: text for name, text in paths.items() if not text.startswith(PROPERTY)}
    keys = {n: text[len(PROPERTY) :].lower() for n, text in paths.items() if n not in body_paths}
    return body_paths, keys


class PropertySource:
    """Adds attributes from properties to the events of a mapper."""

    def __init__(
        self, schema: pa.Schema, missing: str, keys: Mapping[str, str], inner: SourceMapper | None
    ) -> None:
        """The mapping.

        Args:
            schema: of the rows.
            missing: "error" or "null".
            keys: names of properties in small letters, by attribute.
            inner: mapper of the other attributes; None if there are none: each payload is an event.
        """
        self._schema, self._missing, self._keys, self._inner = schema, missing, keys, inner
        self.is_open = getattr(inner, "is_open", None)

    def decode(
        self, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None = None
    ) -> DecodeResult:
        """See ``SourceMapper``."""
        result = self._inner.decode(payloads) if self._inner else _each(len(payloads))
        by_message = properties if properties is not None else [{}] * len(payloads)
        reasons: dict[int, str] = {}
        columns = []
        for field in self._schema:
            if field.name not in self._keys:
                columns.append(result.rows.column(field.name))
                continue
            key = self._keys[field.name]
            values = (by_message[number].get(key) for number in result.message.tolist())
            # Connectors of others may give numbers.
            texts = [None if value is None else str(value) for value in values]
            column, wrong = typed(pa.array(texts, pa.string()), field.type)
            columns.append(column)
            for row in wrong:
                wrong_value = WrongValueError(texts[row], field.type)
                reasons.setdefault(row, wrong_value.reason(field.name))
            if self._missing == "error":
                for row in (row for row, text in enumerate(texts) if text is None):
                    reasons.setdefault(row, f'attribute "{field.name}" is missing')
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return without(replace(result, rows=rows), reasons)


def _each(count: int) -> DecodeResult:
    """An event without attributes for each payload."""
    numbers = np.arange(count, dtype=np.int64)
    rows, times = pa.RecordBatch.from_arrays([], names=[]), pa.nulls(count, pa.int64())
    return DecodeResult(rows, numbers, np.zeros_like(numbers), times, [], count)
