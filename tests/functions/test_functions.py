"""Scalar functions that the binder doesn't offer yet, and the vectors they work on.

The expected values of ``convert`` are Siddhi 5.1.7's; those of ``str:`` and ``math:`` follow the
documentation of its extensions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mesh.functions.conversion import convert, java_text
from mesh.functions.registry import FUNCTIONS
from mesh.functions.vectors import constant, from_arrow
from mesh.model.types import AttributeType
from mesh.operators.frame import Frame
from mesh.testing.cases import same

BOOL, INT, LONG = AttributeType.BOOL, AttributeType.INT, AttributeType.LONG
FLOAT, DOUBLE, STRING = AttributeType.FLOAT, AttributeType.DOUBLE, AttributeType.STRING
NAN, INF = math.nan, math.inf


def single(x: float) -> float:
    return float(np.float32(x))


def check(result: Any, expected: list[Any], type: AttributeType) -> None:
    assert result.type is type
    found = result.to_arrow(len(expected)).to_pylist()
    assert all(same(a, b) for a, b in zip(found, expected, strict=True)), found


@pytest.mark.parametrize(
    ("source", "values", "target", "expected"),
    [
        (DOUBLE, [2.5, -2.7, 1e300, NAN, -1e25, None], INT, [2, -2, 2**31 - 1, 0, -(2**31), None]),
        (DOUBLE, [2.5, 1e300, NAN, 9.3e18, -1e25], LONG, [2, 2**63 - 1, 0, 2**63 - 1, -(2**63)]),
        (LONG, [3, 2**63 - 1, -5_000_000_000, None], INT, [3, -1, -705032704, None]),
        (LONG, [2**63 - 1, 7], DOUBLE, [9.223372036854776e18, 7.0]),
        (INT, [16777217, None], FLOAT, [16777216.0, None]),
        (DOUBLE, [1e300, 0.1, NAN], FLOAT, [INF, single(0.1), NAN]),
        (FLOAT, [0.1, None], DOUBLE, [0.10000000149011612, None]),
        (BOOL, [True, False, None], INT, [1, 0, None]),
        (INT, [1, 2, 0, None], BOOL, [True, False, False, False]),
        (DOUBLE, [1.0, 1.5, NAN, None], BOOL, [True, False, False, False]),
        (STRING, ["TRUE", "true", "1", None, "x"], BOOL, [True, True, False, False, False]),
        (BOOL, [True, None], BOOL, [True, False]),
        (
            STRING,
            ["12", "-7", "+5", " 5", "1.5", "5L", "1_000", "", "2147483648", "٣", None],
            INT,
            [12, -7, 5, None, None, None, None, None, None, 3, None],
        ),
        (STRING, ["9999999999", "-0", "9223372036854775808"], LONG, [9999999999, 0, None]),
        (
            STRING,
            ["1.5", " 5", "1e3", "NaN", "NAN", "-Infinity", "1.5f", "1d", ".5", "5.", "-0", "0x10"],
            DOUBLE,
            [1.5, 5.0, 1000.0, NAN, None, -INF, 1.5, 1.0, 0.5, 5.0, -0.0, None],
        ),
        (STRING, ["0x1p3", "1e400", "1_000", ""], DOUBLE, [8.0, INF, None, None]),
        (STRING, ["1.5", "abc", None], FLOAT, [1.5, None, None]),
        (INT, [1, -2, None], STRING, ["1", "-2", None]),
        (LONG, [2**63 - 1], STRING, ["9223372036854775807"]),
        (BOOL, [True, False, None], STRING, ["true", "false", None]),
        (
            DOUBLE,
            [2.5, 1e300, NAN, 1e7, 0.001, 9.9e-4, 100.0, 123456789.125, -INF, -0.0, None],
            STRING,
            ["2.5", "1.0E300", "NaN", "1.0E7", "0.001", "9.9E-4", "100.0", "1.23456789125E8",
             "-Infinity", "-0.0", None],
        ),
        (FLOAT, [0.1, 1e10, 16777216.0, 1e-5], STRING, ["0.1", "1.0E10", "1.6777216E7", "1.0E-5"]),
    ],
)  # fmt: skip
def test_convert(
    source: AttributeType, values: list[Any], target: AttributeType, expected: list[Any]
) -> None:
    check(convert(from_arrow(pa.array(values, source.arrow), source), target), expected, target)


TEXTS = ["xÄ", "", None, "a😀"]
DOUBLES = [2.5, -2.5, 0.49999999999999994, NAN, 1e300, None, -0.4]


@pytest.mark.parametrize(
    ("name", "type", "values", "result", "expected"),
    [
        ("str:length", STRING, TEXTS, INT, [2, 0, None, 3]),
        ("str:upper", STRING, TEXTS, STRING, ["XÄ", "", None, "A😀"]),
        ("str:lower", STRING, TEXTS, STRING, ["xä", "", None, "a😀"]),
        ("math:abs", DOUBLE, [-1.5, None], DOUBLE, [1.5, None]),
        ("math:abs", INT, [-(2**31), 3], DOUBLE, [2147483648.0, 3.0]),
        ("math:floor", DOUBLE, [2.5, -2.5, None], DOUBLE, [2.0, -3.0, None]),
        ("math:ceil", DOUBLE, [2.5, -2.5, None], DOUBLE, [3.0, -2.0, None]),
        ("math:sqrt", DOUBLE, [4.0, -1.0, None], DOUBLE, [2.0, NAN, None]),
        ("math:round", DOUBLE, DOUBLES, LONG, [3, -2, 0, 0, 2**63 - 1, None, 0]),
        ("math:round", FLOAT, [2.5, 1e10, None], INT, [3, 2**31 - 1, None]),
    ],
)
def test_functions_of_one_argument(
    name: str, type: AttributeType, values: list[Any], result: AttributeType, expected: list[Any]
) -> None:
    argument = from_arrow(pa.array(values, type.arrow), type)
    check(FUNCTIONS[name]([argument], result, Frame(len(values), {})), expected, result)


def test_concat_of_nulls_alone_is_empty_and_moves_no_other_row() -> None:
    texts = from_arrow(pa.array(["a", None, "c"]), STRING)
    check(FUNCTIONS["str:concat"]([texts, texts], STRING, Frame(3, {})), ["aa", "", "cc"], STRING)


def test_concat_leaves_nulls_out_and_takes_any_type() -> None:
    arguments = [
        from_arrow(pa.array(["a", None]), STRING),
        constant("-", STRING),
        from_arrow(pa.array([1.0, None]), DOUBLE),
    ]
    check(FUNCTIONS["str:concat"](arguments, STRING, Frame(2, {})), ["a-1.0", "-"], STRING)


def test_a_number_reads_back_from_its_text() -> None:
    rng = np.random.default_rng(1)
    numbers = np.ldexp(rng.random(2000), rng.integers(-300, 300, 2000))
    assert all(float(java_text(x)) == x for x in numbers)


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
