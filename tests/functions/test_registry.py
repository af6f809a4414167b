"""Functions of one argument by their names, as the documentation of the extensions has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mesh.functions.registry import FUNCTIONS
from mesh.functions.vectors import from_arrow
from mesh.operators.expressions import Frame
from tests.support.vectors import DOUBLE, FLOAT, INT, LONG, NAN, STRING, check

if TYPE_CHECKING:
    from mesh.model.types import AttributeType

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
