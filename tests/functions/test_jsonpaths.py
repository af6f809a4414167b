"""Paths of JSON: descents end, however many there are."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pyarrow as pa
import pytest

from mesh.mapping.json_source import JsonPathSource
from tests.support.sized import evaluated


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "path",
    [
        "$..*..*..*..*",
        "$..a..a..a..a..a..a",
        "$[?(!(@..* == $..*))]..*..*..*",
        "$[*]..*..*..*..*",
    ],
)  # fmt: skip
def test_a_path_with_several_descents_ends_soon(path: str) -> None:
    nested: Any = 1
    for _ in range(60):
        nested = {"a": nested, "b": 1}
    text = orjson.dumps([nested, nested]).decode()
    before = time.process_time()
    _, failures = evaluated(f"json:getString(s, '{path}')", [{"s": text}, {"s": "[]"}])
    assert sorted(failures) == [0]
    assert "takes too many steps" in failures[0]
    assert time.process_time() - before < 5
    schema = pa.schema([("a", pa.string())])
    source = JsonPathSource(schema, "null", {"a": "$.a"}, path)
    found = source.decode([text.encode(), b'[{"a": 1}]'])
    assert [error[0] for error in found.errors] == [0]


def test_a_descent_in_a_large_document_is_made() -> None:
    text = orjson.dumps([{"k": [number]} for number in range(40_000)]).decode()
    values, failures = evaluated("json:getObject(s, '$..k')", [{"s": text}])
    assert failures == {}
    assert len(values[0]) == 40_000
