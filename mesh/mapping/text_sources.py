"""Payloads of text as rows: CSV, lines of ``name:value``, and maps of keys."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv as arrow_csv

from mesh.functions.patterns import compiled
from mesh.mapping.events import of_texts, of_values
from pyspark_nats.decode.result import DecodeResult, assembled, part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.mapping.events import Parsed

#: ``name:"text",`` or ``name:value,`` in a line.
_LINE: Final = re.compile(r'\s*([A-Za-z_]\w*)\s*:\s*(?:"(.*)"|(.*?))\s*,?\s*\Z', re.DOTALL)
_GROUP: Final = re.compile(r"(\w+)\[(\d+)\]\Z")
#: A field of Python's reader may be as large as a message.
_FIELD_MAX: Final = 64 << 20
_KEYS_MAX: Final = 10_000
_NULL: Final = "null"


class CsvSource:
    """Values by position, one event a line; by Arrow's reader where it accepts all lines."""

    def __init__(
        self,
        schema: pa.Schema,
        *,
        delimiter: str = ",",
        has_header: bool = False,
        positions: Sequence[int] = (),
    ) -> None:
        """The mapping; ``positions`` are the columns of the attributes, those in order if empty."""
        self._schema = schema
        self._delimiter = {"\\t": "\t"}.get(delimiter, delimiter)
        self._has_header = has_header
        self._positions = tuple(positions) or tuple(range(len(schema)))
        self._width = None if positions else len(schema)
        csv.field_size_limit(_FIELD_MAX)

    def decode(
        self, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None = None
    ) -> DecodeResult:
        """See ``SourceMapper``."""
        return self._at_once(payloads) or of_texts(self._events, payloads, self._schema, "error")

    def _at_once(self, payloads: Sequence[bytes]) -> DecodeResult | None:
        """All lines by Arrow; None if a line needs another reader, or is wrong."""
        if self._has_header or self._width is None or len(self._delimiter) != 1 or not payloads:
            return None
        joined = b"\n".join(payloads)
        counts = None
        if joined.count(b"\n") != len(payloads) - 1:
            lines = [payload.removesuffix(b"\n") for payload in payloads]
            counts = np.array([line.count(b"\n") + 1 for line in lines])
            joined = b"\n".join(lines)
        if b'"' in joined or b"\r" in joined or b"\x00" in joined:
            return None
        try:
            table = arrow_csv.read_csv(
                io.BytesIO(joined),
                read_options=arrow_csv.ReadOptions(
                    column_names=self._schema.names, use_threads=False
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self._delimiter, quote_char=False, ignore_empty_lines=False
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=self._schema,
                    null_values=[_NULL],
                    strings_can_be_null=True,
                    true_values=["true", "TRUE", "True"],
                    false_values=["false", "FALSE", "False"],
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowKeyError, OverflowError):
            return None
        total = len(payloads) if counts is None else int(counts.sum())
        if table.num_rows != total:
            return None
        message = np.arange(len(payloads), dtype=np.int64)
        index = np.zeros(total, np.int64)
        if counts is not None:
            message = np.repeat(message, counts)
            index = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = table.combine_chunks().to_batches()
        return assembled(
            [part(rows[0], message, index)] if rows else [], self._schema, [], len(payloads)
        )

    def _events(self, number: int, payload: bytes) -> Parsed:
        text = payload.decode()
        if "\x00" in text:
            return ["the payload holds a NUL character"]
        rows = [row for row in csv.reader(io.StringIO(text), delimiter=self._delimiter) if row]
        if not self._has_header or not rows:
            return [self._event(row) for row in rows] or ["no values"]
        head, *rows = rows
        if self._width is None or not set(self._schema.names) <= set(head):
            return [self._event(row) for row in rows]
        places = [head.index(name) for name in self._schema.names]
        return [self._named(row, places) for row in rows]

    def _named(self, row: list[str], places: Sequence[int]) -> dict[str, Any] | str:
        if max(places) >= len(row):
            return f"the line has {len(row)} values, and value {max(places)} is used"
        names = zip(self._schema.names, places, strict=True)
        return {name: None if row[at] == _NULL else row[at] for name, at in names}

    def _event(self, row: list[str]) -> dict[str, Any] | str:
        if self._width is not None and len(row) != self._width:
            return f"the line has {len(row)} values, the stream {self._width} attributes"
        return self._named(row, self._positions)


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
        """The mapping; ``groups`` are ``A[1]`` by attribute, ``patterns`` Java's, by name."""
        self._schema, self._missing, self._delimiter = schema, missing, delimiter
        self._patterns = {name: compiled(text) for name, text in (patterns or {}).items()}
        self._groups = {name: _group_of(text) for name, text in (groups or {}).items()}

    def decode(
        self, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None = None
    ) -> DecodeResult:
        """See ``SourceMapper``."""
        return of_texts(self._events, payloads, self._schema, self._missing)

    def _events(self, number: int, payload: bytes) -> Parsed:
        events: Parsed = []
        block: list[str] = []
        for line in [*payload.decode().split("\n"), self._delimiter]:
            if line.rstrip("\r") != self._delimiter:
                block.append(line)
                continue
            if any(one.strip() for one in block):
                events.append(self._event("\n".join(block)))
            block = []
        return events or ["no event"]

    def _event(self, text: str) -> dict[str, Any] | str:
        if self._groups:
            found = {name: pattern.search(text) for name, pattern in self._patterns.items()}
            event: dict[str, Any] = {}
            for name, (pattern, group) in self._groups.items():
                match = found.get(pattern)
                if match is not None:
                    event[name] = match.group(group)
            return event
        event = {}
        for line in text.split("\n"):
            if not line.strip():
                continue
            match = _LINE.match(line)
            if match is None:
                return f'a line is no name:value: "{line[:80]}"'
            value = match[2] if match[2] is not None else match[3]
            event[match[1]] = None if value == _NULL else value
        return event


def _group_of(text: str) -> tuple[str, int]:
    match = _GROUP.match(text)
    if match is None:
        raise ValueError(f'"{text}" is no group such as A[1]')
    return match[1], int(match[2])


class KeyValueSource:
    """Maps: JSON objects with typed values, or forms, whose values are texts."""

    def __init__(
        self, schema: pa.Schema, missing: str, keys: Mapping[str, str], *, casts: bool = False
    ) -> None:
        """The mapping; ``keys`` are the attributes' keys, ``casts``: convert texts to types."""
        self._schema, self._missing, self._keys, self._casts = schema, missing, keys, casts

    def decode(
        self, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None = None
    ) -> DecodeResult:
        """See ``SourceMapper``."""
        is_json = [payload.lstrip()[:1] in (b"{", b"[") for payload in payloads]
        if all(is_json) and not self._casts:
            return of_values(self._typed, payloads, self._schema, self._missing)
        return of_texts(self._texts, payloads, self._schema, self._missing)

    def _typed(self, number: int, payload: bytes) -> Parsed:
        document = orjson.loads(payload)
        several = document if isinstance(document, list) else [document]
        return [self._named(one) if isinstance(one, dict) else "no map" for one in several]

    def _named(self, given: dict[str, Any]) -> dict[str, Any]:
        return {name: given[key] for name, key in self._keys.items() if key in given}

    def _texts(self, number: int, payload: bytes) -> Parsed:
        if payload.lstrip()[:1] in (b"{", b"["):
            return [
                {name: _text(value) for name, value in event.items()}
                if isinstance(event, dict)
                else event
                for event in self._typed(number, payload)
            ]
        pairs = parse_qsl(
            payload.decode(), keep_blank_values=True, strict_parsing=True,
            errors="strict", max_num_fields=_KEYS_MAX,
        )  # fmt: skip
        return [self._named(dict(pairs))]


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value).decode()
