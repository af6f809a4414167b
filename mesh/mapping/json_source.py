"""JSON payloads as rows: by attribute name, or by JSON paths.

Events are objects by attribute name, alone, in an array or one a line; each may be inside of
``{"event": ..}``.

A query group that reads the messages of a source itself has no mapper.  For one with
``@map(type='json')`` it decodes by ``decode_mapped``, which has the events that this mapper has.
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
from pyspark_nats.arrow import ArrowArray, kernels, rows_at
from pyspark_nats.decode import decode_messages, json_layout, rules
from pyspark_nats.decode.result import USUAL, DecodeResult, assembled, part
from pyspark_nats.decode.rules import events_of_json, events_of_msgpack
from pyspark_nats.decode.values import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.functions.jsonpaths import Path
    from mesh.mapping.events import Parsed
    from mesh.model.values import EventValues
    from pyspark_nats.decode.result import DecodedPart, MessageLimits

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

    def __init__(
        self,
        schema: pa.Schema,
        missing: str,
        content_type: str,
        limits: MessageLimits = USUAL,
    ) -> None:
        self._schema, self._missing, self._content_type = schema, missing, content_type
        self._limits = limits
        #: A payload's events with exact values; None where the strict reader has them all.
        self._read = _READERS.get(content_type)

    def decode(
        self, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None = None
    ) -> DecodeResult:
        """See ``SourceMapper``."""
        result = self.strict(payloads)
        if self._read is None:
            return result
        odd = odd_messages(result)
        return self.again(result, payloads, odd) if odd else result

    def strict(self, payloads: Sequence[bytes]) -> DecodeResult:
        """Events whose values are of the attributes' types."""
        return self._plain(pa.array(payloads, pa.binary()), self._schema)

    def again(
        self,
        strict: DecodeResult,
        payloads: Sequence[bytes] | Mapping[int, bytes],
        numbers: Sequence[int],
    ) -> DecodeResult:
        """The same events, but those of some payloads as their exact values are."""
        numbers = [n for n in numbers if len(payloads[n]) <= self._limits.bytes_max]
        chosen = [without_mark(payloads[n]) for n in numbers]
        result = of_values(self._events, chosen, self._schema, self._missing, limits=self._limits)
        return replaced(strict, numbers, result)

    def _events(self, _: int, payload: bytes) -> Parsed:
        """The events of a payload by its exact values."""
        assert self._read is not None
        return [
            event if isinstance(event, str) else self._event(event, payload)
            for event in self._read(payload)
        ]

    def _event(self, event: EventValues, payload: bytes) -> EventValues | str:
        return event

    def _plain(self, data: Any, schema: pa.Schema) -> DecodeResult:
        kinds = pa.repeat(pa.scalar(self._content_type), len(data))
        parts: list[DecodedPart] = []
        errors: list[tuple[int, int, str]] = []
        at = 0
        while at < len(data):
            result = decode_messages(
                data.slice(at), kinds.slice(at), schema, missing=self._missing, limits=self._limits
            )
            errors += [(number + at, index, why) for number, index, why in result.errors]
            rows = part(result.rows, result.message + at, result.index)
            parts += [rows] if result.rows.num_rows else []
            at += result.taken
        return assembled(parts, schema, errors, len(data))


class JsonSource(PlainSource):
    """The default mapping of JSON."""

    def __init__(self, schema: pa.Schema, missing: str, limits: MessageLimits = USUAL) -> None:
        super().__init__(schema, missing, "application/json", limits)

    def _event(self, event: EventValues, payload: bytes) -> EventValues | str:
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
        result = self._bare(payloads, data)
        if result is not None:
            return result
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
        result = self._plain(inner, self._schema)
        if not result.errors:
            return result
        # Each has one event; the reasons are those of the whole payloads.
        numbers = sorted({number for number, _, _ in result.errors})
        again = self._unwrapped(data.take(rows_at(np.array(numbers))), self._schema)
        return replaced(result, numbers, again)

    def _unwrapped(self, data: Any, schema: pa.Schema) -> DecodeResult:
        """Events inside of ``event``, read as a struct."""
        outer = pa.schema([pa.field(_EVENT, pa.struct(list(schema)))])
        result = self._plain(data, outer)
        inner: Any = result.rows.column(0)
        errors = [(n, i, why.replace('"event.', '"')) for n, i, why in result.errors]
        keep = inner.is_valid()
        message, index = result.message, result.index
        if inner.null_count:
            gone = np.flatnonzero(~keep.to_numpy(zero_copy_only=False))
            errors += [(int(message[n]), int(index[n]), '"event" is null') for n in gone]
            mask = keep.to_numpy(zero_copy_only=False)
            inner, message, index = inner.filter(keep), message[mask], index[mask]
        if not len(inner):
            return assembled([], schema, errors, len(data))
        rows = pa.RecordBatch.from_arrays(inner.flatten(), schema=schema)
        return assembled([part(rows, message, index)], schema, errors, len(data))


def odd_messages(result: DecodeResult) -> list[int]:
    """Messages whose exact values the strict reader may not have, in order."""
    odd = {number for number, _, _ in result.errors}
    odd |= set(result.message[large(result.rows, _WHOLE_MAX)].tolist())
    return sorted(odd)


def decode_mapped(
    data: ArrowArray,
    content_type: ArrowArray,
    schema: pa.Schema,
    *,
    missing: str = "error",
    limits: MessageLimits = USUAL,
) -> DecodeResult:
    """Decode messages as ``decode_messages`` does, but those of JSON as the mapper ``json`` does.

    Messages without an envelope are read once; only those that then have an error are read again.
    """
    source = JsonSource(schema, missing, limits)
    is_json = content_type.null_count == len(data)
    if is_json and len(data) and _ENVELOPE_OF(data[0].as_py() or b"") is not None:
        return source.decode(kernels.fill_null(data, b"").to_pylist())
    result = decode_messages(data, content_type, schema, missing=missing, limits=limits)
    odd = odd_messages(result)
    if not is_json:
        odd = [n for n in odd if rules.kind_of(content_type[n].as_py() or "") == "json"]
    if not odd:
        return result
    return source.again(result, {n: data[n].as_py() or b"" for n in odd}, odd)


def _are_alike(payloads: Sequence[bytes], data: Any) -> bool:
    """Whether each payload is an envelope in one line that is written without spaces."""
    if len(payloads) <= _FEW:
        least = len(_HEAD) + len(_TAIL)
        return bool(payloads) and all(
            p.startswith(_HEAD) and p.endswith(_TAIL) and len(p) >= least and b"\n" not in p
            for p in payloads
        )
    bounds, octets = json_layout.bounds_of(data), json_layout.octets_of(data)
    first, last = bounds[:-1], bounds[1:]
    if not len(data) or (last - first).min() < len(_HEAD) + len(_TAIL):
        return False
    marks = [(first + at, mark) for at, mark in enumerate(_HEAD)]
    marks += [(last - len(_TAIL) + at, mark) for at, mark in enumerate(_TAIL)]
    return all(bool((octets[at] == mark).all()) for at, mark in marks) and not (
        json_layout.has_line_feed(data)
    )


def _enveloped(payloads: Sequence[bytes], data: Any) -> Any:
    """Whether each payload begins as an envelope, as flags."""
    if len(payloads) <= _FEW:
        return np.fromiter((_ENVELOPE_OF(p) is not None for p in payloads), bool, len(payloads))
    matches: Any = kernels.match_substring_regex(data, _ENVELOPE)
    return matches.to_numpy(zero_copy_only=False)


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
            element = self._enclosing.read(document)
        except PathNotFoundError:
            return ["the enclosing element is missing"]
        several = element if isinstance(element, list) else [element]
        return [self._event(one) for one in several]

    def _event(self, document: Any) -> EventValues:
        event: EventValues = {}
        for name, path in self._paths:
            try:
                event[name] = path.read(document)
            except PathNotFoundError:
                continue
        return event


def rooted(path: str) -> str:
    """A JSON path from the root; the root may be left out."""
    return path if path.startswith(("$", "@")) else f"$.{path}"
