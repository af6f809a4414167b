"""JSON payloads as rows: by attribute name, or by JSON paths.

Events are objects by attribute name, alone, in an array or one a line; each may be inside of
``{"event": ..}``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa

from mesh.functions.jsonpaths import PathNotFoundError, parse
from mesh.mapping.events import of_values
from pyspark_nats.arrow import kernels, rows_at
from pyspark_nats.conversions import EXACT, NO, REFUSED, Conversions
from pyspark_nats.decode import decode_messages, json_text
from pyspark_nats.decode.result import DecodeResult, assembled, part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.functions.jsonpaths import Path
    from mesh.mapping.events import Parsed
    from pyspark_nats.decode.result import Part

_EVENT: Final = "event"
_ENVELOPE: Final = r'^\s*(\[\s*)?\{\s*"event"\s*:\s*\{'
_HEAD: Final = b'{"event":{'
_TAIL: Final = b"}}"
_ENVELOPE_OF: Final = re.compile(_ENVELOPE.encode()).match
#: Payloads up to which Python's expression is faster: Arrow compiles its own for each batch.
_FEW: Final = 500

_INT: Final = EXACT.unless("beyond 32 bits")
_LONG: Final = EXACT.unless("beyond 64 bits")
MSGPACK_READ: Final = Conversions(
    "MessagePack",
    "read",
    {
        "nil": (EXACT,) * 6 + (NO,),
        "boolean": (REFUSED,) * 5 + (EXACT, NO),
        "integer": (REFUSED, _INT, _LONG, EXACT, EXACT, REFUSED, NO),
        "float 32, float 64": (REFUSED, REFUSED, REFUSED, EXACT, EXACT, REFUSED, NO),
        "string": (EXACT, *(REFUSED,) * 5, NO),
        "binary": (*(REFUSED,) * 6, NO),
        "array, map": (*(REFUSED,) * 6, NO),
        "timestamp and other extensions": (*(REFUSED,) * 6, NO),
    },
    notes=("A payload is a map by attribute name, or an array of such maps.",),
)


class PlainSource:
    """Payloads of a content type, by attribute name."""

    def __init__(self, schema: pa.Schema, missing: str, content_type: str) -> None:
        self._schema, self._missing, self._content_type = schema, missing, content_type

    def decode(
        self, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None = None
    ) -> DecodeResult:
        """See ``SourceMapper``."""
        data = pa.array(payloads, pa.binary())
        return self._plain(data, self._schema)

    def _plain(self, data: Any, schema: pa.Schema) -> DecodeResult:
        kinds = pa.repeat(pa.scalar(self._content_type), len(data))
        parts: list[Part] = []
        errors: list[tuple[int, int, str]] = []
        at = 0
        while at < len(data):
            found = decode_messages(data.slice(at), kinds.slice(at), schema, missing=self._missing)
            errors += [(number + at, index, why) for number, index, why in found.errors]
            rows = part(found.rows, found.message + at, found.index)
            parts += [rows] if found.rows.num_rows else []
            at += found.taken
        return assembled(parts, schema, errors, len(data))


class JsonSource(PlainSource):
    """The default mapping of JSON."""

    def __init__(self, schema: pa.Schema, missing: str) -> None:
        super().__init__(schema, missing, "application/json")

    def decode(
        self, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None = None
    ) -> DecodeResult:
        """See ``SourceMapper``."""
        data = pa.array(payloads, pa.binary())
        if _EVENT in self._schema.names:
            return self._plain(data, self._schema)
        found = self._bare(data)
        if found is not None:
            return found
        flags = _enveloped(payloads, data)
        if not flags.any():
            return self._plain(data, self._schema)
        if flags.all():
            return self._unwrapped(data, self._schema)
        parts, errors = [], []
        for mask, decode in ((~flags, self._plain), (flags, self._unwrapped)):
            at = np.flatnonzero(mask)
            if len(at):
                found = decode(data.take(rows_at(at)), self._schema)
                errors += [(int(at[number]), index, why) for number, index, why in found.errors]
                parts += [part(found.rows, at[found.message], found.index)]
        return assembled(parts, self._schema, errors, len(data))

    def _bare(self, data: Any) -> DecodeResult | None:
        """Events without the octets of their envelopes; None if one is written in another way.

        What is left of an envelope with something else in it is no JSON.
        """
        if not _are_alike(data):
            return None
        inner = kernels.binary_slice(data, len(_HEAD) - 1, -1)
        found = self._plain(inner, self._schema)
        if not found.errors:
            return found
        # Each has one event; the reasons are those of the whole payloads.
        at = np.array(sorted({number for number, _, _ in found.errors}))
        again = self._unwrapped(data.take(rows_at(at)), self._schema)
        parts = [part(found.rows, found.message, found.index)] if found.rows.num_rows else []
        if again.rows.num_rows:
            parts.append(part(again.rows, at[again.message], again.index))
        errors = [(int(at[number]), index, why) for number, index, why in again.errors]
        return assembled(parts, self._schema, errors, len(data))

    def _unwrapped(self, data: Any, schema: pa.Schema) -> DecodeResult:
        """Events inside of ``event``, read as a struct."""
        outer = pa.schema([pa.field(_EVENT, pa.struct(list(schema)))])
        found = self._plain(data, outer)
        inner: Any = found.rows.column(0)
        errors = [(n, i, why.replace('"event.', '"')) for n, i, why in found.errors]
        keep = inner.is_valid()
        message, index = found.message, found.index
        if inner.null_count:
            gone = np.flatnonzero(~keep.to_numpy(zero_copy_only=False))
            errors += [(int(message[n]), int(index[n]), '"event" is null') for n in gone]
            mask = keep.to_numpy(zero_copy_only=False)
            inner, message, index = inner.filter(keep), message[mask], index[mask]
        if not len(inner):
            return assembled([], schema, errors, len(data))
        rows = pa.RecordBatch.from_arrays(inner.flatten(), schema=schema)
        return assembled([part(rows, message, index)], schema, errors, len(data))


def _are_alike(data: Any) -> bool:
    """Whether each payload is an envelope in one line that is written without spaces."""
    bounds, octets = json_text.bounds_of(data), json_text.octets_of(data)
    first, last = bounds[:-1], bounds[1:]
    if not len(data) or (last - first).min() < len(_HEAD) + len(_TAIL):
        return False
    marks = [(first + at, mark) for at, mark in enumerate(_HEAD)]
    marks += [(last - len(_TAIL) + at, mark) for at, mark in enumerate(_TAIL)]
    return all(bool((octets[at] == mark).all()) for at, mark in marks) and not (
        json_text.has_line_feed(data)
    )


def _enveloped(payloads: Sequence[bytes], data: Any) -> Any:
    """Whether each payload begins as an envelope, as flags."""
    if len(payloads) <= _FEW:
        return np.fromiter((_ENVELOPE_OF(p) is not None for p in payloads), bool, len(payloads))
    found: Any = kernels.match_substring_regex(data, _ENVELOPE)
    return found.to_numpy(zero_copy_only=False)


class JsonPathSource:
    """The custom mapping: a JSON path for each attribute."""

    def __init__(
        self, schema: pa.Schema, missing: str, paths: Mapping[str, str], enclosing: str
    ) -> None:
        self._schema, self._missing = schema, missing
        self._enclosing = parse(rooted(enclosing))
        self._paths: list[tuple[str, Path, bool]] = []
        for field in schema:
            is_text = pa.types.is_string(field.type)
            self._paths.append((field.name, parse(rooted(paths[field.name])), is_text))

    def decode(
        self, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None = None
    ) -> DecodeResult:
        """See ``SourceMapper``."""

        def events(number: int, payload: bytes) -> Parsed:
            try:
                document = orjson.loads(payload)
            except orjson.JSONDecodeError as error:
                return [f"not JSON: {error.msg}"]
            try:
                found = self._enclosing.read(document)
            except PathNotFoundError:
                return ["the enclosing element is missing"]
            several = found if isinstance(found, list) else [found]
            return [self._event(one) for one in several]

        return of_values(events, payloads, self._schema, self._missing)

    def _event(self, document: Any) -> dict[str, Any]:
        event: dict[str, Any] = {}
        for name, path, is_text in self._paths:
            try:
                value = path.read(document)
            except PathNotFoundError:
                continue
            if is_text and value is not None and not isinstance(value, str):
                value = orjson.dumps(value).decode()
            event[name] = value
        return event


def rooted(path: str) -> str:
    """A JSON path from the root; the root may be left out."""
    return path if path.startswith(("$", "@")) else f"$.{path}"
