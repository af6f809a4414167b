"""Messages that go out: their headers.

Tags of rows.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_nats.errors import SchemaError
from pyspark_nats.sink import messages_out


def test_headers_can_not_smuggle_others_in() -> None:
    kind = pa.map_(pa.string(), pa.list_(pa.string()))
    orders = [
        "Nats-Batch-Id", "Nats-Expected-Last-Sequence", "Nats-Rollup", "nats-rollup", "Nats-Msg-Id",
        "Nats-TTL", "Nats-Schedule", "Nats-Schedule-Target", "Nats-Incr", "Nats-Sequence",
    ]  # fmt: skip
    first = [("A", ["1", "2"]), *((name, ["x"]) for name in orders)]
    headers = pa.array([first, None, []], kind)
    assert messages_out.header_lines(headers).to_pylist() == [b"A: 1\r\nA: 2\r\n", None, None]
    for name, value in (("A", "x\r\nEvil: y"), ("A: b", "c"), ("", "c"), ("A\r\nB", "c")):
        with pytest.raises(SchemaError, match="can't be sent"):
            messages_out.header_lines(pa.array([[(name, [value])]], kind))


def test_a_null_among_the_values_of_a_header_is_left_out() -> None:
    kind = pa.map_(pa.string(), pa.list_(pa.string()))
    headers = pa.array([[("A", ["1", None, "2"]), ("B", [None]), ("C", None)]], kind)
    assert messages_out.header_lines(headers).to_pylist() == [b"A: 1\r\nA: 2\r\n"]


pytestmark = pytest.mark.nats


def test_tags_of_rows_do_not_depend_on_how_they_are_asked_for() -> None:
    key = bytes(range(16))
    whole = messages_out.tags(key, 1, 3000)
    parts = b"".join(messages_out.tags(key, n, 1) for n in range(1, 3001))
    assert whole == parts
    assert messages_out.tags(bytes(16), 1, 3000) != whole
    size = messages_out.SIZE
    assert len({whole[at : at + size] for at in range(0, len(whole), size)}) == 3000
