"""Values that would not be read back exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from pyspark_nats.encode.row_mapping import check_exact
from pyspark_nats.errors import SchemaError

if TYPE_CHECKING:
    from pyspark_nats.arrow import Array

FORMATS: Final = ("json", "msgpack", "arrow")


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1.0, float("nan")]),
        pa.array([None, float("inf")], pa.float32()),
        pa.array([[1.0], None, [float("-inf")]]),
        pa.array([{"a": None}, {"a": float("nan")}]),
        pa.array([[("k", float("nan"))]], pa.map_(pa.string(), pa.float64())),
    ],
)
def test_numbers_that_json_lacks_are_refused(values: Array) -> None:
    rows = pa.RecordBatch.from_arrays([values], names=["v"])
    with pytest.raises(SchemaError, match=r'column "v" is (NaN|-?Infinity) in a row'):
        check_exact("json", rows)
    check_exact("msgpack", rows)
    # A row that is not written does not count.
    check_exact("json", rows.slice(0, 0))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.date32(), 2_932_897), (pa.date32(), -719_163),
        (pa.timestamp("us", "UTC"), 253_402_300_800_000_000),
        (pa.timestamp("us"), -62_135_596_800_000_001),
    ],
)  # fmt: skip
def test_times_beyond_the_years_of_readers_are_refused(
    form: str, kind: pa.DataType, value: int
) -> None:
    plain = pa.array([0, None, value], pa.int32() if kind == pa.date32() else pa.int64())
    for values in (plain.view(kind), pa.ListArray.from_arrays([0, 3], plain.view(kind))):
        rows = pa.RecordBatch.from_arrays([values], names=["v"])
        with pytest.raises(SchemaError, match='column "v" is a time before year 1 or after'):
            check_exact(form, rows)
