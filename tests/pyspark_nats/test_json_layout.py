"""Objects of JSON that are laid out alike."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pyspark_nats.decode import json_layout

pytestmark = pytest.mark.usefixtures("in_blocks")


def test_flat_objects_laid_out_alike_need_no_parser() -> None:
    fields: list[Any] = [
        ("id", pa.int64()),
        ("s", pa.string()),
        ("x", pa.float32()),
        ("b", pa.bool_()),
    ]
    schema = pa.schema(fields)
    texts = [f'{{"s": "é{n}", "z": {n}, "x": -{n}.5, "b": true, "id": {n}}}' for n in range(20)]
    rows = json_layout.decode_alike(pa.array(texts, pa.string()).cast(pa.binary()), schema)
    assert rows is not None
    assert rows.to_pylist() == [
        {"id": n, "s": f"é{n}", "x": -n - 0.5, "b": True} for n in range(20)
    ]
