"""Decoder of few JSON messages as lists of values, for which columns cost more than the values.

It reads what most messages are: one flat object with values of the attributes' types.  The decoder
of columns (``pyspark_nats.decode``) reads all others, by the same rules.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import orjson

from pyspark_nats.arrow import FEW, few_nulls
from pyspark_nats.decode import plans, rules
from pyspark_nats.decode.result import DecodeResult
from pyspark_nats.few_rows import FewRows
from pyspark_nats.protocol.frames import few_header_values

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_nats.decode.result import Ints, MessageLimits
    from pyspark_nats.source.messages import Messages


def decode_few(
    messages: Messages, schema: pa.Schema, event_time_header: str, limits: MessageLimits
) -> DecodeResult | None:
    """The events of few messages whose attributes are all there.

    Args:
        messages: any; their content type counts.
        schema: of the attributes.
        event_time_header: header of messages with a time of their own; empty for none.
        limits: of one message.

    Returns:
        One row for each message; None if one of them is, or may be, anything else.
    """
    if len(messages) > FEW:
        return None
    plan, few = plans.of(schema), messages.few
    if few is None or plan.readers is None or plan.row_bytes > limits.bytes_max:
        return None
    headers = [header for header, _ in few if header]
    if headers and not _are_plain(headers, event_time_header):
        return None
    events = []
    for _, payload in few:
        if len(payload) > limits.bytes_max:
            return None
        try:
            event = orjson.loads(payload)
        except orjson.JSONDecodeError:
            return None
        if type(event) is not dict:
            return None
        events.append(event)
    lists = plans.lists_of(events, plan.readers)
    if lists is None or not limits.events_max:
        return None
    message, index = _one_each(len(few))
    rows = FewRows(plan.schema, lists, len(few))
    return DecodeResult(rows, message, index, few_nulls(len(few)), [], len(few))


def _are_plain(headers: list[bytes], event_time_header: str) -> bool:
    """Whether all are JSON, and none has a time of its own."""
    if event_time_header and any(few_header_values(headers, event_time_header)):
        return False
    return all(map(_is_json, few_header_values(headers, "Content-Type")))


@lru_cache(maxsize=64)
def _is_json(content_type: str | None) -> bool:
    return content_type is None or rules.kind_of(content_type) == "json"


@lru_cache(maxsize=FEW)
def _one_each(count: int) -> tuple[Ints, Ints]:
    """The message of each event, and its index in it."""
    message, index = np.arange(count), np.zeros(count, np.int64)
    message.flags.writeable = index.flags.writeable = False
    return message, index
