"""Records, names and partitions: values that cross a process border are unchanged after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.errors import MeshError
from mesh.model import codec, names
from mesh.model.app import AppSpec, Channel, Format, GroupInput, GroupSpec, Strategy
from mesh.model.cluster import (
    AppRecord,
    Assignment,
    InstanceState,
    InstanceStatus,
    LeaseRecord,
    NodeRecord,
    NodeRole,
)
from mesh.model.partition import fnv1a_32, partitions
from mesh.model.types import Attribute, AttributeType, StreamSchema

SCHEMA = StreamSchema(
    "S", (Attribute("a", AttributeType.LONG), Attribute("b", AttributeType.STRING))
)
KEYED = Channel("App", SCHEMA, key=("b",), partitions=8, format=Format.ARROW)
SPEC = AppSpec(
    "App",
    "text",
    (KEYED,),
    (GroupSpec("App", "g", 2, "text", (GroupInput(KEYED, Strategy.BY_KEY, True),), (), True),),
)


@pytest.mark.parametrize(
    "record",
    [
        LeaseRecord("m1", 3),
        NodeRecord("w1", NodeRole.WORKER, "x", "", 4),
        AppRecord(SPEC, "i1", 5, deleting=True),
        Assignment("App-g-1", "App", "g", 1, "i1", "w1", 2, 7),
        InstanceStatus("App-g-1", "App", "w1", 2, InstanceState.RETRYING, 9, error="x"),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_is_read_back_as_it_was_written(record: object) -> None:
    assert codec.decode(type(record), codec.encode(record)) == record


def test_a_record_of_a_neighbouring_version_is_read() -> None:
    assert codec.decode(LeaseRecord, b'{"holder": "m1", "term": 3, "new": [1]}') == LeaseRecord(
        "m1", 3
    )


@pytest.mark.parametrize("data", [b"", b"[]", b'{"holder": 3, "term": 1}', b'{"holder": "m"}'])
def test_what_is_no_record_is_refused(data: bytes) -> None:
    with pytest.raises(MeshError) as caught:
        codec.decode(LeaseRecord, data)
    assert caught.value.code == "MESH-C100"


def test_subjects_and_streams_of_channels() -> None:
    plain = Channel("App", SCHEMA)
    assert (plain.subject(), plain.js_stream()) == ("mesh.App.S", "mesh-App-S")
    assert KEYED.subject(3) == "mesh.App.S.by.b.3"
    assert KEYED.js_stream(3) == "mesh-App-S-by-b-3"
    assert names.marker_subject("mesh-App-S") == "mesh._marker.mesh-App-S"


@pytest.mark.parametrize("name", ["", "a b", "a.b", "_a", "-a", "a>", "ü", "a" * 101])
def test_a_name_that_can_not_stand_in_a_subject_is_no_app_name(name: str) -> None:
    assert not names.is_app_name(name)


def fnv1a_byte_by_byte(data: bytes) -> int:
    value = 2166136261
    for byte in data:
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value


@given(st.lists(st.binary(max_size=40)))
def test_hashes_equal_the_definition(values: list[bytes]) -> None:
    hashes = fnv1a_32(pa.array(values, pa.binary()))
    assert hashes.tolist() == [fnv1a_byte_by_byte(value) for value in values]


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_hashes_of_many_values_equal_the_definition(values: list[bytes]) -> None:
    # Array operations work on this many.
    many = [*values, *(b"x" * (number % 7) for number in range(200))]
    hashes = fnv1a_32(pa.array(many, pa.binary()))
    assert hashes.tolist() == [fnv1a_byte_by_byte(value) for value in many]


def test_one_long_key_does_not_cost_array_operations_for_each_byte(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches = 0
    search = np.searchsorted

    def counted(*given: Any, **named: Any) -> Any:
        nonlocal searches
        searches += 1
        return search(*given, **named)

    monkeypatch.setattr(np, "searchsorted", counted)
    long = b"x" * 20_000
    hashes = fnv1a_32(pa.array([b"short", long, *[b"seven.."] * 300], pa.binary()))
    assert hashes[1] == fnv1a_byte_by_byte(long)
    assert searches < 20


@given(st.lists(st.text(max_size=10), min_size=1), st.integers(0, 5))
def test_a_slice_has_the_partitions_of_its_rows(values: list[str], skip: int) -> None:
    whole = pa.array(values)
    assert partitions([whole.slice(skip)], 8).tolist() == partitions([whole], 8).tolist()[skip:]


def test_a_key_of_several_columns_is_joined() -> None:
    joined = partitions([pa.array(["a_1", "b_"])], 8)
    apart = partitions([pa.array(["a", "b"]), pa.array([1, None])], 8)
    assert apart.tolist() == joined.tolist()
