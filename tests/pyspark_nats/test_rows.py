"""Rows of messages, as lists and as columns."""

from __future__ import annotations

import pyarrow as pa

from pyspark_nats.protocol import frames
from pyspark_nats.source import messages, rows


def test_columns_made_when_needed_are_those_of_the_rows() -> None:
    header = b"NATS/1.0\r\nContent-Type: a/b\r\nT: 17\r\n\r\n"
    head = b"MSG ev.%d 1 $JS.ACK.S.c.1.%d.%d.17000000%d.0 2\r\nx%d\r\n"
    heads = [head % ((n,) * 5) for n in range(1, 4)]
    last = b"HMSG ev.4 1 $JS.ACK.S.c.1.4.4.170000004.0 %d %d\r\n" % (len(header), len(header) + 2)
    received = frames.split(b"".join([*heads, last, header, b"x4\r\n"]))
    found, _ = messages.of_consumer("S", "c", 0, received)
    given, whole = rows.MessageRows(found, "T"), rows.marked(found, "T")
    mask = pa.array([True, False, True, True])
    pairs = [
        (given, whole),
        (given.slice(1), whole.slice(1)),
        (given.slice(1, 2), whole.slice(1, 2)),
        (given.filter(mask), whole.filter(mask)),
        (given.filter(mask).slice(2), whole.filter(mask).slice(2)),
    ]
    for one, other in pairs:
        assert one.num_rows == other.num_rows > 0
        columns = [one.column(name) for name in rows.MARKED.names]
        assert pa.RecordBatch.from_arrays(columns, schema=rows.MARKED).equals(other)
    assert whole.column("event_time_ms").to_pylist() == [None, None, None, 17]
