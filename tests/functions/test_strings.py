"""Texts put together: nulls and other types."""

from __future__ import annotations

import pyarrow as pa

from mesh.functions.registry import FUNCTIONS
from mesh.functions.vectors import constant, from_arrow
from mesh.operators.expressions import Frame
from tests.support.vectors import DOUBLE, STRING, check


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
