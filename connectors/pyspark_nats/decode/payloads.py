"""Decoder of messages by content type: JSON, MessagePack and Arrow.

A message holds one event or many.  An unreadable event is reported with its reason and does not
affect the other events.  ``decode.rules`` and ``decode.values`` define readability;
``json_messages`` and ``arrow_messages`` read whole blocks by the same rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import kernels
from pyspark_nats.decode import rules
from pyspark_nats.decode.arrow_messages import EVENT_TIME as EVENT_TIME
from pyspark_nats.decode.arrow_messages import decode_arrow
from pyspark_nats.decode.json_messages import decode_json
from pyspark_nats.decode.result import DecodeResult as DecodeResult
from pyspark_nats.decode.result import assembled

if TYPE_CHECKING:
    from pyspark_nats.arrow import Array
    from pyspark_nats.decode.result import Ints, Part, Unreadable

JSON, MSGPACK, ARROW = "json", "msgpack", "arrow"

#: Meanings of a missing attribute.
MISSING: Final = ("error", "null")


def decode_messages(
    data: Array, content_type: Array, schema: pa.Schema, *, missing: str = "error"
) -> DecodeResult:
    """Decode messages into rows of ``schema``.

    Args:
        data: length n, binary; null counts as empty.
        content_type: length n, string; null means JSON.
        schema: fields of the types in ``decode.values``; all are nullable.
        missing: the meaning of a missing attribute, "error" or "null"; also inside of structs.

    Returns:
        Every readable event, and an error for every unreadable one.

    Raises:
        ValueError: ``data`` and ``content_type`` differ in length.
    """
    if len(data) != len(content_type):
        raise ValueError(f"{len(data)} payloads and {len(content_type)} content types")
    schema = pa.schema([pa.field(field.name, field.type) for field in schema])
    data = data.cast(pa.binary())
    if data.null_count:
        data = kernels.fill_null(data, b"")
    errors: list[Unreadable] = []
    parts: list[Part] = []
    for kind, at in _by_kind(content_type, errors):
        chosen = data if len(at) == len(data) else data.take(pa.array(at))
        if kind == JSON:
            parts += decode_json(chosen, at, schema, missing, errors)
        elif kind == ARROW:
            parts += decode_arrow(chosen, at, schema, missing, errors)
        else:
            read = rules.events_of_msgpack
            parts += rules.decode_each(chosen, at, schema, missing, errors, read)
    return assembled(parts, schema, errors)


def _by_kind(content_type: Array, errors: list[Unreadable]) -> list[tuple[str, Ints]]:
    """The messages of each kind; an error for those of an unknown kind."""
    if content_type.null_count == len(content_type):
        return [(JSON, np.arange(len(content_type)))] if len(content_type) else []
    encoded = content_type.dictionary_encode()
    kinds = [rules.kind_of(text) for text in encoded.dictionary.to_pylist()]
    if len(kinds) == 1 and kinds[0] and not content_type.null_count:
        return [(kinds[0], np.arange(len(content_type)))]
    codes = kernels.fill_null(encoded.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    # Index -1 gives the last entry: no content type.
    by_code = np.array([*kinds, JSON], dtype=object)[codes]
    errors += [
        (int(at), 0, f'content type "{content_type[int(at)].as_py()}" is not known')
        for at in np.flatnonzero(by_code == "")
    ]
    found = [(kind, np.flatnonzero(by_code == kind)) for kind in (JSON, MSGPACK, ARROW)]
    return [(kind, at) for kind, at in found if len(at)]
