"""Stream functions: what they add to an event, and events that they make of one."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mesh.functions.objects import from_binary
from mesh.language.parser import parse
from mesh.operators.query.handlers import StreamFunctionHandler
from mesh.plan.bind import bind
from mesh.plan.bound import BoundStream, BoundStreamFunction
from tests.support.scripts import ROWS, STREAM, events_of

if TYPE_CHECKING:
    from mesh.operators.base import EventBatch


def stream_function(call: str, rows: list[dict[str, Any]]) -> tuple[EventBatch, dict[int, str]]:
    app = bind(parse(f"{STREAM}from S#{call} select i insert into Out;"))
    source = app.queries[0].input
    assert isinstance(source, BoundStream)
    (handler,) = source.handlers
    assert isinstance(handler, BoundStreamFunction)
    schema = app.stream("S").arrow
    function = StreamFunctionHandler(handler, schema)
    made = function.process(events_of(pa.RecordBatch.from_pylist(rows, schema)))
    assert made.rows.schema == function.schema
    return made, function.failures


def test_pol2cart_adds_two_attributes() -> None:
    made, failures = stream_function("pol2Cart(d, 2.0)", ROWS)
    assert made.order.tolist() == [1, 3, 7]
    assert made.rows.column("x").to_pylist()[0] == 2.0 * math.cos(0.5 * 0.017453292519943295)
    assert failures == {2: "pol2Cart can't take null"}


@pytest.mark.parametrize(
    ("call", "tokens", "orders"),
    [
        ("str:tokenize(s, ',')", ["a", "b", "", "c", "c"], [1, 1, 5, 7, 7]),
        ("str:tokenize(s, ',', true)", ["a", "b", "", "c"], [1, 1, 5, 7]),
    ],
)
def test_a_tokenizer_makes_several_events_of_one(
    call: str, tokens: list[str], orders: list[int]
) -> None:
    made, failures = stream_function(call, ROWS)
    assert made.rows.column("token").to_pylist() == tokens
    assert made.order.tolist() == orders
    assert failures == {1: "str:tokenize can't take null"}


@pytest.mark.parametrize(
    ("call", "attribute", "expected"),
    [
        ('json:tokenize("""[{"a":1},"x"]""", "$[*]")', "jsonElement", ['{"a":1}', '"x"']),
        ('json:tokenize("""{"a":"x"}""", "$.a")', "jsonElement", ["x"]),
        ('json:tokenize("""{"a":1}""", "$.b")', "jsonElement", []),
        ('json:tokenize("""{"a":1}""", "$.b", false)', "jsonElement", [None]),
        ("json:tokenizeAsObject('[[1],[2]]', '$[*]')", "jsonElement", [[1], [2]]),
        ("map:tokenize(map:create('a', 1, 'b', 2))", "key", ["a", "b"]),
        ("map:tokenize(map:create('a', 1), map:create('a', 2))", "value", [[1, 2]]),
        ("list:tokenize(list:create('p', 'q'))", "index", [0, 1]),
        (
            "list:tokenize(list:create('p', 'q'), list:create('r'))",
            "value",
            [["p", "r"], ["q", None]],
        ),
    ],
)
def test_tokenizers_of_documents(call: str, attribute: str, expected: list[Any]) -> None:
    made, failures = stream_function(call, ROWS[:1])
    column = made.rows.column(attribute)
    found = list(from_binary(column)) if pa.types.is_binary(column.type) else column.to_pylist()
    assert (found, failures) == (expected, {})


def test_log_writes_each_event(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="mesh.events"):
        made, _ = stream_function("log('warn', s, true)", ROWS)
    assert len(made) == 4
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 4
    assert caplog.messages[1].startswith("null, StreamEvent{ timestamp=0, data=[null, NaN, null")
