"""Records that cross a process border are unchanged after it."""

from __future__ import annotations

import pytest

from mesh.errors import MeshError
from mesh.model import codec
from mesh.model.app import AppSpec, GroupInput, GroupSpec, Strategy
from mesh.model.cluster import (
    AppRecord,
    Assignment,
    InstanceState,
    InstanceStatus,
    LeaseRecord,
    NodeRecord,
    NodeRole,
)
from tests.support.records import KEYED

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
