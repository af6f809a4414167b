"""Values of headers as columns, cut out of many header blocks at once.  No I/O here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import FEW, kernels
from pyspark_nats.protocol.frames import as_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_nats.arrow import Array

_CRLF = b"\r\n"


def header_values(headers: Array, name: str, *, is_servers: bool = False) -> Array:
    """The first value of header ``name`` in each header block.

    Args:
        headers: length n, binary; null or empty where a message has no headers.
        name: in its spelling on the wire.
        is_servers: take the last value instead.  The server appends its own headers to those of the
            publisher, who may have written the same names.

    Returns:
        Length n, string, without surrounding spaces; null where the header is absent.
    """
    if headers.null_count == len(headers):
        return pa.nulls(len(headers), pa.string())
    key = f"\r\n{name}:".encode()
    if len(headers) <= FEW:
        return pa.array(few_header_values(headers.to_pylist(), name, is_servers), pa.string())
    has = kernels.fill_null(kernels.match_substring(headers, key.decode()), False)
    at = np.flatnonzero(np.asarray(has.to_numpy(zero_copy_only=False), bool))
    texts = pa.nulls(len(headers), pa.string())
    if len(at) == 0:
        return texts
    halves = kernels.split_pattern(
        headers.take(pa.array(at)), key, max_splits=1, reverse=is_servers
    )
    behind = halves.values.take(pa.array(halves.offsets.to_numpy()[:-1] + 1))
    cut = kernels.split_pattern(behind, _CRLF, max_splits=1)
    values = cut.values.take(cut.offsets[:-1])
    trimmed = kernels.utf8_trim_whitespace(as_text(values))
    if len(at) == len(headers):
        return trimmed
    place = np.zeros(len(headers), np.int64)
    place[at] = np.arange(len(at))
    absent = np.ones(len(headers), bool)
    absent[at] = False
    return trimmed.take(pa.array(place, mask=absent))


def few_header_values(
    headers: Iterable[bytes | None], name: str, is_servers: bool = False
) -> list[str | None]:
    """``header_values`` of few messages, as a list."""
    key = f"\r\n{name}:".encode()
    values: list[str | None] = []
    for header in headers:
        at = -1
        if header:
            at = header.rfind(key) if is_servers else header.find(key)
        if header is None or at < 0:
            values.append(None)
            continue
        value = header[at + len(key) :].split(_CRLF, 1)[0]
        values.append(value.decode(errors="replace").strip())
    return values
