"""Messages of JSON lines: the events that a source has read, many in one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.receiver.positions import EventLines
from mesh.telemetry import traces
from pyspark_nats.arrow import kernels
from pyspark_nats.decode.result import without
from pyspark_nats.encode import to_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mesh.connect.contract import Batch
    from pyspark_nats.decode import DecodeResult


def lines_of(rows: pa.RecordBatch, bytes_max: int) -> Iterator[bytes]:
    """JSON lines of rows in payloads of at most ``bytes_max``; a longer event stands alone."""
    lines = to_json(rows)
    as_one = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    whole: bytes = kernels.binary_join(as_one, b"\n")[0].as_py()
    # End of each line in the whole, its line feed among it.
    sizes = kernels.binary_length(lines).to_numpy(zero_copy_only=False)
    ends = np.cumsum(sizes.astype(np.int64) + 1)
    first = start = 0
    while first < len(ends):
        last = int(np.searchsorted(ends, start + bytes_max + 1, side="right"))
        last = max(first + 1, last)
        end = int(ends[last - 1])
        yield whole[start : end - 1]
        first, start = last, end


def payloads_of(
    rows: pa.RecordBatch, bytes_usual: int, bytes_max: int, count_max: int
) -> list[bytes]:
    """JSON lines of rows in payloads of the usual size; in fewer, larger ones if need be.

    An atomic batch takes a number of messages: a source that has read more of them could store
    nothing, and would read the same again.
    """
    payloads = list(lines_of(rows, min(bytes_usual, bytes_max)))
    return payloads if len(payloads) <= count_max else list(lines_of(rows, bytes_max))


def without_larger(result: DecodeResult, bytes_max: int) -> DecodeResult:
    """The result without events that need more bytes as JSON; each of them is an error."""
    sizes = kernels.binary_length(to_json(result.rows)).to_numpy(zero_copy_only=False)
    reasons = {
        at: f"the event needs {sizes[at]} bytes, and the broker accepts {bytes_max}"
        for at in np.flatnonzero(sizes > bytes_max).tolist()
    }
    return without(result, reasons)


def messages_with_traces(
    result: DecodeResult, payloads: Sequence[bytes], batch: Batch
) -> list[EventLines]:
    """Messages of JSON lines; with traces, each has that of its first event with one."""
    properties = batch.properties
    if properties is None or not traces.are_on():
        return [EventLines(payload) for payload in payloads]
    messages: list[EventLines] = []
    first = 0
    for payload in payloads:
        last = first + payload.count(b"\n") + 1
        numbers = dict.fromkeys(result.message[first:last].tolist())
        parents = (properties[number].get(traces.HEADER) for number in numbers)
        texts = (one for one in parents if isinstance(one, str))
        messages.append(EventLines(payload, next(filter(traces.is_parent, texts), "")))
        first = last
    return messages
