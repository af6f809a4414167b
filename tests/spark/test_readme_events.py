"""The README's table of events that can't be read, line by line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa
import pytest

from pyspark_nats.arrow import ipc_stream
from pyspark_nats.decode import MessageLimits
from tests.support.shared_query import Instances, admitted

if TYPE_CHECKING:
    from tests.support.shared_query import Hand

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

README: Final = Path(__file__).parents[2] / "README.md"
HEADING: Final = "### Events that can't be read"
DAY_MS: Final = 86_400_000

APP: Final = """@App:name('{name}')
define function half[python] return double {{
    if data[0] == 13.0:
        raise ValueError("thirteen can't be halved")
    return None if data[0] is None else data[0] / 2
}};
define stream Numbers (item string, price double);
@info(name='halves') @dist(execGroup='halves')
from Numbers select item, half(price) as price, str:length(item) as size insert into Halves;
@info(name='long') @dist(execGroup='long')
from Numbers[price == 7.0] select str:concat(item, item) as item insert into Long;
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A message, and what becomes of it."""

    payload: bytes
    headers: bytes = b""
    #: The row of ``Halves``; None for an event that gives none.
    row: list[Any] | None = None
    #: Parts of the entry of an error; None for an event that is accepted.
    entry: dict[str, str] | None = None


def arrow(items: Any, count: int) -> bytes:
    """A message of so many events without a price."""
    return ipc_stream(pa.RecordBatch.from_arrays([items, pa.nulls(count)], ["item", "price"]))


#: A text of 700 kB, a hundred times.
REPEATED: Final = pa.DictionaryArray.from_arrays(
    pa.array([0] * 100, pa.int8()), pa.array(["a" * 700_000])
)


def timed(time_ms: int) -> bytes:
    return f"Mesh-Timestamp: {time_ms}\r\n".encode()


ARROW: Final = b"Content-Type: application/vnd.apache.arrow.stream\r\n"
ONE: Final = b'{"item":"a","price":1.0}'
CASES: Final = {
    "is not JSON": (Case(b"{price", entry={"reason": "not JSON: "}),),
    "lacks an attribute of the definition": (
        Case(b'{"item":"a"}', entry={"reason": 'attribute "price" is missing'}),
    ),
    "has a value of the wrong type": (
        Case(
            b'{"item":"a","price":"much"}',
            entry={"reason": 'attribute "price" is "much", not a double'},
        ),
    ),
    "has an attribute that the definition lacks": (
        Case(b'{"item":"a","price":1.0,"colour":{"red":[1]}}', row=["a", 0.5, 1]),
    ),
    "has `null` for an attribute": (Case(b'{"item":null,"price":null}', row=[None, None, None]),),
    "is in a message of more than a million events, or 64 MiB when decoded": (
        Case(
            arrow(pa.nulls(1_000_001), 1_000_001),
            ARROW,
            entry={"reason": "the message holds "},
        ),
        Case(arrow(REPEATED, 100), ARROW, entry={"reason": "bytes when decoded, more than "}),
    ),
    "has a time before 1970, or more than a day ahead of NATS's": (
        Case(ONE, timed(-1), entry={"reason": "event time "}),
        # A hundred years after the server's.
        Case(ONE, timed(5_000_000_000_000), entry={"reason": "event time "}),
    ),
    "fails in a query (a Python function that raises)": (
        Case(
            b'{"item":"a","price":13.0}',
            entry={"query": "halves", "reason": "thirteen can't be halved"},
        ),
    ),
    "makes an output larger than NATS's `max_payload`": (
        Case(
            orjson.dumps({"item": "a" * 600_000, "price": 7.0}),
            row=["a" * 600_000, 3.5, 600_000],
            entry={"stream": "Long", "reason": "the event is a message of 12000"},
        ),
    ),
}


def table() -> dict[str, str]:
    """Results by event, from the README."""
    _, _, after = README.read_text("utf-8").partition(HEADING)
    lines = re.findall(r"^\| (.+?) \| (.+?) \|$", after.partition("\n#")[0], re.MULTILINE)
    return dict(lines[2:])


def test_each_line_has_its_cases() -> None:
    assert table().keys() == CASES.keys()


@pytest.mark.parametrize(("event", "result"), table().items())
def test_the_app_continues_and_the_event_is_recorded_with_its_reason(
    hand: Hand, event: str, result: str
) -> None:
    admitted(hand, Instances(hand, "A", app=APP, message=MessageLimits(event_time_ahead_ms=DAY_MS)))
    good = b'{"item":"good","price":2.0}', ["good", 1.0, 4]
    wanted = [good[1]]
    hand.store(good[0])
    for case in CASES[event]:
        hand.store(case.payload, case.headers)
        hand.store(good[0])
        wanted += [row for row in (case.row, good[1]) if row is not None]
    while hand.step(0.3):
        pass
    assert hand.rows("A", "Halves") == wanted
    entries = [case.entry for case in CASES[event] if case.entry is not None]
    assert bool(entries) == result.startswith("error")
    for one, parts in zip(hand.errors(), entries, strict=True):
        assert all(part in one.get(key, "") for key, part in parts.items()), one
        assert all(text in one["reason"] for text in re.findall("`(.+?)`", result))
