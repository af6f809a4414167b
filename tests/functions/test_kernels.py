"""Conversions between types: the values are those of Siddhi 5.1.7."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from mesh.functions.kernels import convert, java_text
from mesh.functions.vectors import from_arrow
from tests.support.vectors import BOOL, DOUBLE, FLOAT, INF, INT, LONG, NAN, STRING, check

if TYPE_CHECKING:
    from mesh.model.types import AttributeType


def single(x: float) -> float:
    return float(np.float32(x))


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


def test_a_number_reads_back_from_its_text() -> None:
    rng = np.random.default_rng(1)
    numbers = np.ldexp(rng.random(2000), rng.integers(-300, 300, 2000))
    assert all(float(java_text(x)) == x for x in numbers)
