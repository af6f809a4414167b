"""Calls of mappers with a last resort: one that fails at a payload or event fails at no other.

A mapper raises no error, and may be code of others.  If it does, it gets the payloads one by one,
and those at which it fails are unreadable.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

import numpy as np

from mesh.mapping.encoder import not_finite
from mesh.mapping.events import Refusal
from mesh.telemetry.logs import fields
from pyspark_nats.decode.result import DecodedPart, assembled, without

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

    from mesh.connect.contract import Batch
    from mesh.mapping.events import SinkMapper, SourceMapper
    from pyspark_nats.decode.result import DecodeResult, Unreadable

log = logging.getLogger(__name__)


def decoded(
    mapper: SourceMapper,
    schema: pa.Schema,
    payloads: Sequence[bytes],
    properties: Sequence[Mapping[str, str]] | None = None,
) -> DecodeResult:
    """The result of ``mapper.decode``; ``schema`` is that of its rows.

    Events become JSON in a stream, so those with NaN or an infinity are errors.
    """
    try:
        result = mapper.decode(payloads, properties)
        return without(result, not_finite(result.rows))
    except Exception as error:
        if len(payloads) == 1:
            return assembled([], schema, [(0, 0, _reason(error))], 1)
        log.warning("mapper failed, payloads one by one", extra=fields(error=error))
    parts: list[DecodedPart] = []
    errors: list[Unreadable] = []
    for at, payload in enumerate(payloads):
        properties_at = None if properties is None else [properties[at]]
        one = decoded(mapper, schema, [payload], properties_at)
        parts.append(DecodedPart(one.rows, one.message + at, one.index, one.event_time_ms))
        errors += [(at, index, reason) for _, index, reason in one.errors]
    return assembled(parts, schema, errors, len(payloads))


def decoded_batch(
    mapper: SourceMapper, schema: pa.Schema, batch: Batch, used: Collection[str] = ()
) -> DecodeResult:
    """The result for a batch; payloads that its source refuses are errors.

    ``used``: names of the properties that the mapper takes, which have to be texts.
    """
    properties = batch.properties
    refused = dict(batch.refused)
    if used and properties is not None:
        properties = list(properties)
        for at, entry in enumerate(properties):
            for name in used:
                value = entry.get(name)
                if isinstance(value, bytes):
                    refused[at] = f'property "{name}" is no text of UTF-8: {value[:40]!r}'
    texts = cast("Sequence[Mapping[str, str]] | None", properties)
    if not refused:
        return decoded(mapper, schema, batch.payloads, texts)
    indices = [at for at in range(len(batch.payloads)) if at not in refused]
    result = decoded(
        mapper, schema, [batch.payloads[at] for at in indices],
        [texts[at] for at in indices] if texts is not None else None,
    )  # fmt: skip
    errors = [(indices[at], index, reason) for at, index, reason in result.errors]
    errors += [(at, 0, reason) for at, reason in refused.items()]
    message = np.array(indices, np.int64)[result.message]
    part = DecodedPart(result.rows, message, result.index, result.event_time_ms)
    return assembled([part], schema, errors, len(batch.payloads))


def encoded(mapper: SinkMapper, rows: pa.RecordBatch) -> list[bytes]:
    """The result of ``mapper.encode``."""
    try:
        return mapper.encode(rows)
    except Exception as error:
        if rows.num_rows == 1:
            return [Refusal(_reason(error).encode(errors="replace"))]
        log.warning("mapper failed, events one by one", extra=fields(error=error))
    return [encoded(mapper, rows.slice(at, 1))[0] for at in range(rows.num_rows)]


def _reason(error: Exception) -> str:
    return f"the mapper failed at it: {type(error).__name__}: {error}"
