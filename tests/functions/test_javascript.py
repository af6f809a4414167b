"""``define function f[javascript]``: its type, its bounds, and its errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mesh.errors import MeshError
from mesh.functions.scripts import compile_scripts
from mesh.language.parser import parse
from mesh.plan.bind import bind
from tests.support.scripts import ROWS, STREAM, evaluated


@pytest.mark.parametrize(
    ("result", "body", "expected"),
    [
        ("int", "return data[0] === null ? null : data[0] * 2.9", [2, None, 0, 11]),
        ("long", "return Math.pow(2, 40);", [2**40] * 4),
        ("long", "return 9007199254740993n;", [2**53 + 1] * 4),
        ("string", "var s = data[2]; return s + '\\u0000\\u20ac' + data[0];", None),
        ("string", "return data[0];", ["1", None, "0", "4"]),
        ("bool", "return data[0] == null;", [False, True, False, False]),
        ("double", "return data[1];", [0.5, math.nan, None, 2.0]),
        ("double", "return 1 / data[0];", [1.0, math.inf, math.inf, 0.25]),
        ("object", "return [data[0], {a: data[3]}];", None),
    ],
)
def test_a_function_in_javascript_returns_its_type(
    result: str, body: str, expected: list[Any] | None
) -> None:
    function = f"define function f[JavaScript] return {result} {{ {body} }};"
    values, failures = evaluated(function, "f(i, d, s, b)", ROWS)
    if result == "string" and expected is None:
        expected = ["a,b\0€1", "null\0€null", "\0€0", "c,c\0€4"]
    elif result == "object":
        expected = [
            [None if row["i"] is None else np.int32(row["i"]), {"a": row["b"]}] for row in ROWS
        ]
    assert failures == {}
    assert repr(values) == repr(expected)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("\n  var x = data[0];\n  return x.length();", "in line 3 (return x.length();): TypeError"),
        ("while (true) {}", "it took more than 1 s"),
        ("kept = []; while (true) kept.push(new Array(1e5).fill(1));", "it took more than 64 MB"),
        ("return (function f() { return f(); })();", "Maximum call stack size"),
        ("return '\\ud83d';", "half of a surrogate pair"),
        ("return 'x';", "it returned 'x', which is no int"),
        ("throw new Error('interrupted: out of memory');", "Error: interrupted: out of memory"),
        ("return require('fs');", "ReferenceError: require is not defined"),
    ],
)
def test_a_function_in_javascript_is_bounded(body: str, why: str) -> None:
    kind = "string" if "ud83d" in body else "int"
    body = f"if (data[0] !== 4) return 7; {body}"
    function = f"define function f[javascript] return {kind} {{ {body} }};"
    values, failures = evaluated(function, "f(i)", [ROWS[0], ROWS[3], ROWS[2]])
    assert [str(values[0]), str(values[2])] == ["7", "7"]
    assert list(failures) == [1]
    assert why in failures[1]


def test_a_function_in_javascript_takes_lists_with_numbers_that_json_lacks() -> None:
    function = "define function f[javascript] return double { return data[0][0]; };"
    values, failures = evaluated(function, "f(list:create(d))", ROWS)
    assert failures == {}
    assert repr(values) == repr([0.5, math.nan, None, 2.0])


def test_a_body_that_is_no_javascript_is_refused_with_its_line() -> None:
    body = "\n  var x = 1;\n  return x +;\n"
    text = f"{STREAM}\ndefine function f[javascript] return int {{{body}}};\n"
    app = bind(parse(text + "from S select f(i) as r insert into Out;"))
    with pytest.raises(MeshError) as caught:
        compile_scripts(app.scripts)
    assert caught.value.code == "MESH-L228"
    assert caught.value.position is not None
    assert caught.value.position.line == 4
