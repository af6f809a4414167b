"""Types, odd numbers, and vectors compared with lists."""

from __future__ import annotations

import math
from typing import Any

from mesh.model.types import AttributeType
from tools.cases import same

BOOL, INT, LONG = AttributeType.BOOL, AttributeType.INT, AttributeType.LONG
FLOAT, DOUBLE, STRING = AttributeType.FLOAT, AttributeType.DOUBLE, AttributeType.STRING
NAN, INF = math.nan, math.inf


def check(result: Any, expected: list[Any], type: AttributeType) -> None:
    assert result.type is type
    found = result.to_arrow(len(expected)).to_pylist()
    assert all(same(a, b) for a, b in zip(found, expected, strict=True)), found
