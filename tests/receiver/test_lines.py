"""Events of a source as messages: few enough for one atomic batch, whatever their sizes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mesh.receiver.sources import payloads_of


@pytest.mark.parametrize(("count_max", "sizes"), [(10, [1] * 8), (8, [1] * 8), (7, [3, 3, 2])])
def test_messages_become_larger_where_a_batch_has_no_room_for_them(
    count_max: int, sizes: list[int]
) -> None:
    # Each is a line of 60 bytes, of which the usual message takes one.
    texts = [f"{n:050}" for n in range(8)]
    rows = pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], names=["text"])
    payloads = payloads_of(rows, 100, 200, count_max)
    assert [payload.count(b"\n") + 1 for payload in payloads] == sizes
    assert b"\n".join(payloads).count(b'{"text":') == 8
