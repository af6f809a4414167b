"""Vectors: constants, and columns to Arrow and back.

A row whose result is too large fails alone, before the memory for it is taken.
"""

from __future__ import annotations

import math
import resource
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.functions import vectors
from mesh.functions.vectors import constant, from_arrow
from mesh.language.parser import parse
from mesh.operators.executor import Executor, InputRun
from mesh.operators.failures import FAILED
from mesh.plan.bind import bind
from tests.support.examples import examples
from tests.support.sized import STREAM, evaluated
from tests.support.vectors import BOOL, DOUBLE, INT, NAN, STRING
from tools.cases import batch


@pytest.mark.parametrize("length", [0, 1, 3])
def test_a_constant_broadcasts_to_any_length(length: int) -> None:
    for value, type in (("a", STRING), (1.5, DOUBLE), (None, INT), (True, BOOL)):
        vector = constant(value, type)
        assert vector.to_arrow(length).to_pylist() == [value] * length
        assert vector.to_arrow(length).type == type.arrow


def test_columns_with_nulls_and_nan_survive_the_way_to_arrow_and_back() -> None:
    array = pa.array([1.0, None, NAN])
    vector = from_arrow(array, DOUBLE)
    back = vector.to_arrow(3)
    assert back.null_count == 1
    assert math.isnan(back[2].as_py())
    sliced = from_arrow(pa.array([True, None, False]).slice(1), BOOL)
    assert sliced.to_arrow(2).to_pylist() == [None, False]


SMALL = 1000


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "RESULT_BYTES_MAX", SMALL)


WIDE = '"' + "x" * 100 + '"'


@pytest.mark.parametrize(
    ("call", "good", "bad"),
    [
        ("str:repeat(s, n)", {"s": "ab", "n": 3}, {"s": "ab", "n": 2_000_000_000}),
        ("str:repeat(s, 90)", {"s": "ab"}, {"s": "ab" * 40}),
        ("str:repeat(s, n)", {"s": "ä", "n": 400}, {"s": "ä", "n": 600}),
        ("str:repeat(s, n)", {"s": "", "n": 5}, {"s": "x", "n": 1001}),
        ("str:replaceAll(s, 'a', s)", {"s": "a"}, {"s": "a" * 40}),
        ("str:replaceAll(s, '(a+)', '$1$1$1')", {"s": "a"}, {"s": "a" * 400}),
        ("str:replaceFirst(s, '(a+)', '$1$1$1')", {"s": "b"}, {"s": "b" * 1001}),
        ("str:concat(s, s, s)", {"s": "a"}, {"s": "a" * 400}),
        ("str:concat(str:concat(s, s), str:concat(s, s))", {"s": "a"}, {"s": "a" * 300}),
        ("str:fillTemplate('{{1}}{{1}}{{1}}', s)", {"s": "a"}, {"s": "a" * 400}),
        ("str:hex(s)", {"s": "a"}, {"s": "a" * 600}),
        ("str:upper(str:repeat(s, n))", {"s": "a", "n": 2}, {"s": "a", "n": 1001}),
        ("map:create(s, s, n, s)", {"s": "a"}, {"s": "a" * 400}),
        ("list:create(s, s, s)", {"s": "a"}, {"s": "a" * 400}),
        ("list:addAll(list:create(s), list:create(s))", {"s": "a"}, {"s": "a" * 600}),
        ("json:setElement('[[], [], []]', '$[*]', s)", {"s": "a"}, {"s": "a" * 400}),
        ("json:setElement(s, '$[*]', s)", {"s": "[[]]"}, {"s": "[" + "[]," * 40 + "[]]"}),
        ("map:toJSON(map:create('k', s))", {"s": "a"}, {"s": "\x01" * 200}),
        ("map:toXML(map:create('k', s))", {"s": "a"}, {"s": "<" * 300}),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("small")
def test_a_row_with_too_large_a_result_fails_alone(
    call: str, good: dict[str, Any], bad: dict[str, Any]
) -> None:
    (alone,), failures = evaluated(call, [good])
    assert failures == {}
    values, failures = evaluated(call, [good, bad, good])
    assert sorted(failures) == [1]
    assert "too large a result" in failures[1]
    assert failures[1].startswith(("str:", "map:", "list:", "json:"))
    assert [values[0], values[2]] == [alone, alone]


#: Calls whose results may be much larger than their arguments.
GROWING = (
    "str:repeat(s, n)", "str:replaceAll(s, 'a', s)", "str:replaceAll(s, '(.)', '$1$1')",
    "str:concat(str:concat(s, s), s)", "str:fillTemplate(s, s, s)", "str:hex(s)", "str:unhex(s)",
    "str:upper(str:repeat(s, n))", "str:split(s, '', n)", "str:substr(s, n)", "map:create(s, n)",
    "list:create(s, s)", "json:setElement(s, '$..*', s)", "json:getString(s, '$..a')",
    "json:toObject(s)", "map:createFromJSON(s)", "map:createFromXML(s)",
    "map:toXML(map:create('k', s))", "map:toJSON(map:createFromJSON(s))",
)  # fmt: skip
TEXTS = st.one_of(
    st.text(st.sampled_from('a$1(){}[]":,<>&/\\.*\0ä\U0001f600'), max_size=60),
    st.sampled_from(
        ["", "a" * 400, "[[[[]]]]", '{"a":{"a":[1,2]}}', "<a><a>b</a></a>", "{{1}}{{1}}"]
    ),
)
NUMBERS = st.sampled_from([None, -(1 << 31), -1, 0, 1, 3, 1001, 2_000_000_000])


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(GROWING), st.lists(st.tuples(TEXTS, NUMBERS), min_size=1, max_size=4))
@pytest.mark.usefixtures("small")
def test_no_values_make_a_larger_result_or_fail_other_rows(
    call: str, given_rows: list[tuple[str, int | None]]
) -> None:
    rows = [{"s": text, "n": number} for text, number in given_rows]
    values, failures = evaluated(call, rows)
    for row, own in enumerate(rows):
        ((alone,), failed) = evaluated(call, [own])
        assert (row in failures) == (0 in failed)
        assert row in failures or values[row] == alone or values[row] != values[row]
        assert row in failures or vectors.size_of(values[row]) <= SMALL


@pytest.mark.usefixtures("small")
def test_results_up_to_the_limit_are_made() -> None:
    values, failures = evaluated("str:repeat(s, n)", [{"s": "a", "n": SMALL}] * 2)
    assert failures == {}
    assert values == ["a" * SMALL] * 2


def test_the_largest_results_fail_where_a_batch_has_no_room_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vectors, "BATCH_BYTES_MAX", 2 * SMALL)
    monkeypatch.setattr(vectors, "RESULT_BYTES_MAX", SMALL)
    lengths = [900, 10, 800, 20, 700, 30]
    for call in ("str:repeat('x', n)", "str:concat(s, '')"):
        rows = [{"s": "x" * length, "n": length} for length in lengths]
        values, failures = evaluated(call, rows)
        assert sorted(failures) == [0]
        assert [len(value) for value in values[1:]] == lengths[1:]
    # One text in many rows takes its bytes in each of them.
    values, failures = evaluated("str:replaceAll(s, 'x', 'yy')", [{"s": "x" * 100}] * 20)
    assert sorted(failures) == list(range(20))
    values, failures = evaluated("str:repeat('x', 100)", [{"n": 1}] * 50)
    assert sorted(failures) == list(range(50))


@pytest.mark.usefixtures("small")
def test_a_script_is_bounded_as_well() -> None:
    vectorised = "return ['x' * n for n in data[0].to_pylist()]"
    for mark, body in (("", "return 'x' * data[0]"), ("# vectorised", vectorised)):
        text = f"define function f[python] return string {{ {mark}\n {body} }}; "
        bound = bind(parse(f"{STREAM}{text}from S select f(n) as r insert into Out;"))
        executor = Executor(bound, ["Out", FAILED])
        found = executor.run([run_of(bound, [["a", 3, None], ["b", 1001, None]])], {"S": 9})
        assert rows_of(found, "Out") == [{"r": "xxx"}]
        (failed,) = rows_of(found, FAILED)
        assert "f: too large a result: 1001 bytes, more than 1000" in failed["reason"]


def run_of(bound: Any, values: list[list[Any]]) -> InputRun:
    times = np.arange(len(values), dtype=np.int64)
    return InputRun("S", times, times, batch(bound.stream("S"), values))


def rows_of(found: Any, stream: str) -> list[dict[str, Any]]:
    return [row for one in found if one.stream == stream for row in one.rows.to_pylist()]


def test_tokens_of_one_event_do_not_take_its_bytes_without_end() -> None:
    bound = bind(parse(f"{STREAM}from S#str:tokenize(s, ',') select n, token insert into Out;"))
    # 20,000 events with 40,000 octets each.
    large = ",".join(["a"] * 20_000)
    executor = Executor(bound, ["Out", FAILED])
    found = executor.run(
        [run_of(bound, [["a,b", 1, None], [large, 2, None], ["c", 3, None]])], {"S": 9}
    )
    assert [row["token"] for row in rows_of(found, "Out")] == ["a", "b", "c"]
    (failed,) = rows_of(found, FAILED)
    assert "too large a result" in failed["reason"]


PROGRAM = """
import resource, sys
sys.path.insert(0, {root!r})
from tests.support.sized import evaluated
rows = [{{"s": "ab", "n": 1}}, {{"s": "ab", "n": 2_000_000_000}}, {{"s": "ab", "n": 2}}]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
values, failures = evaluated("str:repeat(s, n)", rows)
assert [values[0], values[2]] == ["ab", "abab"], values
assert sorted(failures) == [1], failures
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_no_memory_is_taken_for_a_result_that_is_refused() -> None:
    root = sys.path[0] if "tests" not in sys.path[0] else "."
    limit = 3 << 30
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(root=root)],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
    )
    assert int(done.stdout) < 100_000
