"""Each cell of the tables of conversions of payloads in docs/types.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import pytest

from mesh.mapping import json_source, source_mapper
from mesh.model.types import Attribute, AttributeType, StreamSchema
from tests.support.conversions import AppRefusedError, EventRefusedError, Sample, cells, check

if TYPE_CHECKING:
    from mesh.mapping.contract import SourceMapper
    from pyspark_nats.conversions import Cell


def stream_of(column: str) -> StreamSchema:
    return StreamSchema("S", (Attribute("a", AttributeType(column)),))


def mapper_of(kind: str, column: str, **options: Any) -> SourceMapper:
    try:
        return source_mapper(kind, options, (), stream_of(column))
    except ValueError as error:
        raise AppRefusedError(error) from error


def read(mapper: SourceMapper, payload: bytes) -> Any:
    found = mapper.decode([payload])
    if found.errors:
        assert '"a"' in found.errors[0][2]
        raise EventRefusedError(found.errors[0][2])
    return found.rows.column(0)[0].as_py()


_BIG = 1 << 63
MSGPACK = {
    "nil": Sample(None, dict.fromkeys(json_source.MSGPACK_READ.columns)),
    "boolean": Sample(True, {"bool": True}),
    "integer": Sample(
        7, {"int": 7, "long": 7, "float": 7.0, "double": 7.0}, {"int": 1 << 31, "long": _BIG}
    ),
    "float 32, float 64": Sample(1.5, {"float": 1.5, "double": 1.5}),
    "string": Sample("ä", {"string": "ä"}),
    "binary": Sample(b"\x01"),
    "array, map": Sample([1]),
    "timestamp and other extensions": Sample(msgpack.Timestamp(1, 5)),
}


@pytest.mark.parametrize(("kind", "column", "cell"), cells(json_source.MSGPACK_READ))
def test_msgpack_is_read_as_the_table_says(kind: str, column: str, cell: Cell) -> None:
    def convert(value: Any) -> Any:
        return read(mapper_of("msgpack", column), msgpack.packb({"a": value}))

    check(cell, MSGPACK[kind], column, convert)
