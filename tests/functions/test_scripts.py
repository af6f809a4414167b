"""``define function f[python]``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from mesh.errors import MeshError
from mesh.functions import script_switch
from mesh.functions.objects import ValueSet
from mesh.functions.scripts import compile_scripts
from mesh.functions.vectors import python_values
from mesh.language.parser import parse
from mesh.operators.expressions import Environment, Frame, compile_expression, compile_filter, using
from mesh.plan.bind import bind
from mesh.plan.bound import BoundFilter, BoundStream
from tests.support.scripts import ROWS, STREAM, evaluated, events_of

if TYPE_CHECKING:
    from tests.support.environment import Variables

RECIPROCAL = """
define function reciprocal[python] return double {
    x = data[0]
    return 1 / x
};"""
VECTORISED = """
define function reciprocal[python] return double {
    # vectorised
    if pc.any(pc.equal(data[0], 0)).as_py() or data[0].null_count:
        raise ValueError("no")
    return pc.divide(1.0, data[0])
};"""


@pytest.mark.parametrize("functions", [RECIPROCAL, VECTORISED])
def test_a_row_on_which_a_function_raises_fails_alone(functions: str) -> None:
    values, failures = evaluated(functions, "reciprocal(i)", ROWS)
    assert values == [1.0, None, None, 0.25]
    assert sorted(failures) == [1, 2]


def test_a_failure_says_where_in_the_function() -> None:
    _, failures = evaluated(RECIPROCAL, "reciprocal(i)", ROWS)
    assert failures[2] == (
        'function "reciprocal" failed in line 3 (return 1 / x): ZeroDivisionError: division by zero'
    )


@pytest.mark.parametrize(
    ("result", "body", "expected"),
    [
        ("int", "return data[0]", [1, None, 0, 4]),
        ("long", "return 2 ** 40", [2**40] * 4),
        ("int", "return 2 ** 40 + 5", [5] * 4),
        ("int", "return 2.7", [2] * 4),
        ("string", "return str(data[0])", ["1", "None", "0", "4"]),
        ("bool", "return data[0] is None", [False, True, False, False]),
        ("bool", "return None", [False] * 4),
        ("object", "return {1, 2}", [ValueSet([np.int32(1), np.int32(2)])] * 4),
        ("double", "# vectorised\n return np.arange(len(data[0]))", [0.0, 1.0, 2.0, 3.0]),
        ("string", "# vectorized\n return ['x'] * len(data[0])", ["x"] * 4),
        ("int", "# vectorised\n return data[0]", [1, None, 0, 4]),
    ],
)
def test_what_a_function_returns_has_its_type(result: str, body: str, expected: Any) -> None:
    function = f"define function f[python] return {result} {{ {body} }};"
    values, failures = evaluated(function, "f(i)", ROWS)
    assert (values, failures) == (expected, {})


@pytest.mark.parametrize("body", ["return 'x'", "# vectorised\n return ['x'] * len(data[0])"])
def test_a_result_of_another_type_fails_the_row(body: str) -> None:
    _, failures = evaluated(f"define function f[python] return int {{ {body} }};", "f(i)", ROWS)
    assert sorted(failures) == [0, 1, 2, 3]


def test_a_body_that_is_no_python_is_told_with_its_line() -> None:
    text = f"{STREAM}\ndefine function f[python] return int {{\n  x = 1\n  return x +\n}};\n"
    app = bind(parse(text + "from S select f(i) as r insert into Out;"))
    with pytest.raises(MeshError) as caught:
        compile_scripts(app.scripts)
    assert caught.value.code == "MESH-L228"
    assert caught.value.position is not None
    assert caught.value.position.line == 4


@pytest.mark.parametrize(
    ("condition", "passes", "fails"),
    [
        ("b and bad(i)", [], [0, 3]),
        ("b or bad(i)", [0, 3], [1, 2]),
        ("ifThenElse(b, true, bad(i))", [0, 3], [1, 2]),
        ("not (b and bad(i))", [1, 2], [0, 3]),
    ],
)
def test_only_what_the_engine_would_evaluate_fails(
    condition: str, passes: list[int], fails: list[int]
) -> None:
    text = f"{STREAM} define function bad[python] return bool {{ raise ValueError('bad') }};"
    app = bind(parse(f"{text} from S[{condition}] select i insert into Out;"))
    source = app.queries[0].input
    assert isinstance(source, BoundStream)
    (written,) = source.handlers
    assert isinstance(written, BoundFilter)
    with using(Environment(compile_scripts(app.scripts))):
        check = compile_filter(written.condition)
    frame = Frame.of_rows(pa.RecordBatch.from_pylist(ROWS, app.stream("S").arrow))
    assert np.flatnonzero(check(frame)).tolist() == passes
    assert sorted(frame.failures) == fails


def test_uuids_are_the_same_however_the_events_are_cut() -> None:
    app = bind(parse(f"{STREAM}from S select UUID() as u insert into Out;"))
    evaluate = compile_expression(app.queries[0].outputs[0].expression)
    rows = pa.RecordBatch.from_pylist(ROWS * 25, app.stream("S").arrow)
    events = events_of(rows)
    # Arrays of five events each: those of one array are distinguished by their places in it.
    events.order[:] = 2 * (np.arange(100) // 5) + 1

    def made(start: int, stop: int) -> list[Any]:
        return python_values(evaluate(Frame.of_events(events.slice(start, stop))))

    whole = made(0, 100)
    assert len(set(whole)) == 100
    for cut in (5, 40, 95):
        assert made(0, cut) + made(cut, 100) == whole


def test_no_function_runs_in_a_process_that_runs_none(environment: Variables) -> None:
    app = bind(parse(f"{STREAM}{RECIPROCAL} from S select reciprocal(d) as r insert into Out;"))
    environment.update(script_switch.switch(False))
    with pytest.raises(MeshError, match="MESH-S131") as error:
        compile_scripts(app.scripts)
    assert error.value.position is not None
    environment.update(script_switch.switch(True))
    assert list(compile_scripts(app.scripts)) == ["reciprocal"]


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


@pytest.mark.sampled(2)
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
