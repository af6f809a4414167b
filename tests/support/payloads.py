"""Values through the mappers of payloads, for the tests of docs/types.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mesh.mapping import sink_mapper, source_mapper
from mesh.mapping.events import Refusal
from mesh.model.types import Attribute, AttributeType, StreamSchema
from tests.support.conversions import AppRefusedError, EventRefusedError, Sample, cells

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_nats.conversions import Conversions

TYPES = ("string", "int", "long", "float", "double", "bool")


def stream_of(column: str) -> StreamSchema:
    return StreamSchema("S", (Attribute("a", AttributeType(column)),))


def read(mapper: str, column: str, payload: bytes, **options: Any) -> Any:
    """The value of attribute ``a``."""
    try:
        source = source_mapper(mapper, options, (), stream_of(column))
    except ValueError as error:
        raise AppRefusedError(error) from error
    found = source.decode([payload])
    if found.errors:
        assert '"a"' in found.errors[0][2]
        raise EventRefusedError(found.errors[0][2])
    return found.rows.column(0)[0].as_py()


def written(mapper: str, column: str, value: Any, **options: Any) -> bytes:
    """The payload of an event with a value of a Siddhi type."""
    try:
        sink = sink_mapper(mapper, options, (), stream_of(column))
    except ValueError as error:
        raise AppRefusedError(error) from error
    kind = AttributeType(column).arrow
    rows = pa.RecordBatch.from_arrays([pa.array([value], kind)], names=["a"])
    (payload,) = sink.encode(rows)
    if isinstance(payload, Refusal):
        assert '"a"' in payload.decode()
        raise EventRefusedError(payload.decode())
    return payload


def whole(value: int, text: str | None = None) -> dict[str, Any]:
    """A whole number in each type."""
    return {
        "string": text or str(value), "int": value, "long": value, "float": float(value),
        "double": float(value),
    }  # fmt: skip


def cases(table: Conversions, samples: Mapping[str, Sequence[Sample]]) -> list[Any]:
    """The cells of a table, each with one of the samples of its row."""
    assert set(samples) == set(table.rows)
    return [
        pytest.param(*param.values, sample, id=f"{param.id}-{number}")
        for param in cells(table)
        for number, sample in enumerate(samples[str(param.values[0])])
    ]


#: A number that no double has.
ODD = (1 << 53) + 1
WHOLE = {"int": 1 << 31, "long": 1 << 63, "float": (1 << 24) + 1, "double": ODD}
NULL = dict.fromkeys(TYPES)
#: Values that a whole number of 64 bits has beyond other types.
LONGS = {"int": 1 << 31, "float": (1 << 24) + 1, "double": ODD}
REAL = {"string": "0.5", "float": 0.5, "double": 0.5}
#: A value of each type, for cells that refuse all.
ANY = {"string": "?", "int": 7, "long": 7, "float": 7.5, "double": 7.5, "bool": True, "object": b""}
