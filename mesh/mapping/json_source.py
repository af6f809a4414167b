"""JSON payloads as rows: by attribute name, or by JSON paths.

Events are objects by attribute name, alone, in an array or one a line; each may be inside of
``{"event": ..}``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mesh.functions.exact_json import read_exact
from mesh.functions.jsonpaths import PathNotFoundError, parse
from mesh.mapping.events import JsonEvents, merged, of_values, replaced, without_mark
from mesh.mapping.texts import large
from pyspark_nats.arrow import kernels, rows_at
from pyspark_nats.decode import decode_messages, json_text
from pyspark_nats.decode.limits import USUAL
from pyspark_nats.decode.result import DecodeResult, assembled, part
from pyspark_nats.decode.rules import events_of_json, events_of_msgpack
from pyspark_nats.decode.values import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.functions.jsonpaths import Path
    from mesh.mapping.events import Parsed
    from pyspark_nats.decode.result import Part

_EVENT: Final = "event"
#: From it on the strict reader rounds whole numbers.
_WHOLE_MAX: Final = 1 << 63
_ENVELOPE: Final = r'^\s*(\[\s*)?\{\s*"event"\s*:\s*\{'
_HEAD: Final = b'{"event":{'
_TAIL: Final = b"}}"
_ENVELOPE_OF: Final = re.compile(_ENVELOPE.encode()).match
#: Payloads up to which Python's expression is faster: Arrow compiles its own for each batch.
_FEW: Final = 500


def _json_events(payload: bytes) -> Parsed:
    return events_of_json(payload, read_exact)


_READERS: Final = {
    "application/json": _json_events,
    "application/msgpack": events_of_msgpack,
}


class PlainSource:
    """Payloads of a content type, by attribute name."""

    def __init__(self, schema: pa.Schema, missing: str, content_type: str) -> None:
        self._schema, self._missing, self._content_type = schema, missing, content_type
        #: A payload's events with exact values; None where the strict reader has them all.
        self._read = _READERS.get(content_type)

    def decode(
        self, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None = None
    ) -> DecodeResult:
        """See ``SourceMapper``."""
        found = self.strict(payloads)
        if self._read is None:
            return found
        odd = {number for number, _, _ in found.errors}
        odd |= set(found.message[large(found.rows, _WHOLE_MAX)].tolist())
        return self._again(found, payloads, sorted(odd)) if odd else found

    def strict(self, payloads: Sequence[bytes]) -> DecodeResult:
        """Events whose values are of the attributes' types."""
        return self._plain(pa.array(payloads, pa.binary()), self._schema)

    def _again(
        self, strict: DecodeResult, payloads: Sequence[bytes], numbers: Sequence[int]
    ) -> DecodeResult:
        """The same events, but those of some payloads as their exact values are."""
        numbers = [n for n in numbers if len(payloads[n]) <= USUAL.bytes_max]
        chosen = [without_mark(payloads[n]) for n in numbers]
        found = of_values(self._events, chosen, self._schema, self._missing)
        return replaced(strict, numbers, found)

    def _events(self, _: int, payload: bytes) -> Parsed:
        """The events of a payload by its exact values."""
        assert self._read is not None
        return [
            event if isinstance(event, str) else self._event(event, payload)
            for event in self._read(payload)
        ]

    def _event(self, event: dict[str, Any], payload: bytes) -> dict[str, Any] | str:
        return event

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

    def _event(self, event: dict[str, Any], payload: bytes) -> dict[str, Any] | str:
        if _EVENT not in self._schema.names and _ENVELOPE_OF(payload) is not None:
            inner = event.get(_EVENT)
            if not isinstance(inner, dict):
                is_missing = _EVENT not in event
                return f'"event" is {"missing" if is_missing else shown(inner) + ", not an object"}'
            event = inner
        return event

    def strict(self, payloads: Sequence[bytes]) -> DecodeResult:
        """See ``PlainSource``."""
        data = pa.array(payloads, pa.binary())
        if _EVENT in self._schema.names:
            return self._plain(data, self._schema)
        found = self._bare(payloads, data)
        if found is not None:
            return found
        flags = _enveloped(payloads, data)
        if not flags.any():
            return self._plain(data, self._schema)
        if flags.all():
            return self._unwrapped(data, self._schema)
        several = []
        for mask, decode in ((~flags, self._plain), (flags, self._unwrapped)):
            at = np.flatnonzero(mask)
            if len(at):
                several.append((at, decode(data.take(rows_at(at)), self._schema)))
        return merged(several, self._schema, len(data))

    def _bare(self, payloads: Sequence[bytes], data: Any) -> DecodeResult | None:
        """Events without the octets of their envelopes; None if one is written in another way.

        What is left of an envelope with something else in it is no JSON.
        """
        if not _are_alike(payloads, data):
            return None
        inner = kernels.binary_slice(data, len(_HEAD) - 1, -1)
        found = self._plain(inner, self._schema)
        if not found.errors:
            return found
        # Each has one event; the reasons are those of the whole payloads.
        numbers = sorted({number for number, _, _ in found.errors})
        again = self._unwrapped(data.take(rows_at(np.array(numbers))), self._schema)
        return replaced(found, numbers, again)

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


def _are_alike(payloads: Sequence[bytes], data: Any) -> bool:
    """Whether each payload is an envelope in one line that is written without spaces."""
    if len(payloads) <= _FEW:
        least = len(_HEAD) + len(_TAIL)
        return bool(payloads) and all(
            p.startswith(_HEAD) and p.endswith(_TAIL) and len(p) >= least and b"\n" not in p
            for p in payloads
        )
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
        self._enclosing = parse(rooted(enclosing))
        self._paths: list[tuple[str, Path]] = [
            (name, parse(rooted(paths[name]))) for name in schema.names
        ]
        self._json = JsonEvents(schema, missing, self._events_of)

    def decode(
        self, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None = None
    ) -> DecodeResult:
        """See ``SourceMapper``."""
        return self._json.decode(payloads)

    def _events_of(self, document: Any) -> Parsed:
        try:
            found = self._enclosing.read(document)
        except PathNotFoundError:
            return ["the enclosing element is missing"]
        several = found if isinstance(found, list) else [found]
        return [self._event(one) for one in several]

    def _event(self, document: Any) -> dict[str, Any]:
        event: dict[str, Any] = {}
        for name, path in self._paths:
            try:
                event[name] = path.read(document)
            except PathNotFoundError:
                continue
        return event


def rooted(path: str) -> str:
    """A JSON path from the root; the root may be left out."""
    return path if path.startswith(("$", "@")) else f"$.{path}"
