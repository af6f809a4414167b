"""Decoder of messages by content type: JSON, MessagePack and Arrow.

A message holds one event or many.  An unreadable event is reported with its reason and does not
affect the other events.  ``decode.rules`` and ``decode.values`` define readability;
``json_messages`` and ``arrow_messages`` read whole blocks by the same rules.

No message raises an error.  Where the decoder of a block fails in a way that its rules do not know,
the block is halved until the message is found.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import kernels
from pyspark_nats.decode import plans, rules
from pyspark_nats.decode.arrow_messages import EVENT_TIME as EVENT_TIME
from pyspark_nats.decode.arrow_messages import decode_arrow
from pyspark_nats.decode.json_messages import decode_json
from pyspark_nats.decode.result import USUAL, assembled
from pyspark_nats.decode.result import DecodeResult as DecodeResult
from pyspark_nats.decode.result import MessageLimits as MessageLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_nats.arrow import Array
    from pyspark_nats.decode.result import DecodedPart, Ints, Unreadable

JSON, MSGPACK, ARROW = "json", "msgpack", "arrow"

#: Meanings of a missing attribute.
MISSING: Final = ("error", "null")


def decode_messages(
    data: Array,
    content_type: Array,
    schema: pa.Schema,
    *,
    missing: str = "error",
    limits: MessageLimits = USUAL,
) -> DecodeResult:
    """Decode messages into rows of ``schema``, from the first on while memory allows.

    Args:
        data: length n, binary; null counts as empty.
        content_type: length n, string; null means JSON.
        schema: fields of the types in ``decode.values``; all are nullable.
        missing: the meaning of a missing attribute, "error" or "null"; also inside of structs.
        limits: of one message; one beyond them is unreadable.

    Returns:
        Every readable event, and an error for every unreadable one, of the first ``taken``
        messages.  They are all unless Arrow messages claim more than ``limits.batch_bytes_max``.

    Raises:
        ValueError: ``data`` and ``content_type`` differ in length.
    """
    if len(data) != len(content_type):
        raise ValueError(f"{len(data)} payloads and {len(content_type)} content types")
    schema = plans.of(schema).schema
    if not pa.types.is_binary(data.type):
        data = data.cast(pa.binary())
    if data.null_count:
        data = kernels.fill_null(data, b"")
    errors: list[Unreadable] = []
    parts: list[DecodedPart] = []
    taken = len(data)
    # Arrow comes first: it decides how many messages are taken.
    for kind, at in sorted(_by_kind(content_type, errors)):
        at = _small_enough(data, at[at < taken], limits, errors)
        chosen = data if len(at) == len(data) else data.take(pa.array(at))
        if kind == ARROW:
            parts, count = decode_arrow(chosen, at, schema, missing, errors, limits)
            taken = int(at[count]) if count < len(at) else taken
        elif kind == JSON:
            read = partial(decode_json, schema=schema, missing=missing, limits=limits)
            parts += _guarded(read, chosen, at, errors)
        else:
            read = partial(
                rules.decode_each,
                schema=schema,
                missing=missing,
                events_of=partial(rules.events_of_msgpack, bytes_max=limits.bytes_max),
                limits=limits,
            )
            parts += _guarded(read, chosen, at, errors)
    return assembled(parts, schema, [error for error in errors if error[0] < taken], taken)


def _small_enough(data: Array, at: Ints, limits: MessageLimits, errors: list[Unreadable]) -> Ints:
    """The messages ``at`` whose payloads are within the limits; an error for each of the others."""
    if data.nbytes <= limits.bytes_max:
        return at
    sizes: Ints = kernels.binary_length(data).to_numpy(zero_copy_only=False)[at]
    for number, size in zip(at.tolist(), sizes.tolist(), strict=True):
        reason = limits.reason(0, size)
        if reason is not None:
            errors.append((number, 0, reason))
    small: Ints = at[sizes <= limits.bytes_max]
    return small


def _guarded(
    decode: Callable[..., list[DecodedPart]], data: Array, at: Ints, errors: list[Unreadable]
) -> list[DecodedPart]:
    """The parts by ``decode``; if it fails, an error for the messages that make it fail."""
    new_errors: list[Unreadable] = []
    try:
        parts = decode(data, at, errors=new_errors)
    except MemoryError:
        # The limits bound the memory for a message, so this says nothing about it.
        raise
    # A stranger's octets may fail in any way.
    except Exception as error:
        if len(at) == 1:
            lines = str(error).splitlines()
            said = f"{type(error).__name__}: {lines[0] if lines else ''}"
            errors.append((int(at[0]), 0, f"the message can't be decoded: {said}"))
            return []
        middle = len(at) // 2
        return [
            *_guarded(decode, data.slice(0, middle), at[:middle], errors),
            *_guarded(decode, data.slice(middle), at[middle:], errors),
        ]
    errors += new_errors
    return parts


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
    groups = [(kind, np.flatnonzero(by_code == kind)) for kind in (JSON, MSGPACK, ARROW)]
    return [(kind, at) for kind, at in groups if len(at)]
