"""Streams that a group may read, as a worker compares them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from mesh.model.permits import check_inputs, check_stream, streams_of_others
from mesh.plan.build import plan
from mesh.plan.reads import reads_of, with_reads

if TYPE_CHECKING:
    from mesh.model.app import AppSpec

OWN = ("ORDERS", "KV_orders", "mesh-Shop-Orders", "mesh-Shop-Orders-by-item-3")
OTHERS = (
    "mesh-Bank-Orders", "mesh-Bank-Orders-by-item-3", "mesh-Shop-2-Orders", "mesh-Shop-errors-",
    "mesh-topics-", "mesh_journal", "mesh_audit", "KV_mesh_apps", "OBJ_mesh_state",
)  # fmt: skip


def spec_of(stream: str) -> AppSpec:
    source = f"@source(type='nats', stream='{stream}')"
    text = f"@App:name('Shop') {source} define stream S (a int); from S select a insert into T;"
    return plan(text).spec


def test_streams_of_the_app_and_of_others_outside_the_mesh_need_no_permission() -> None:
    assert streams_of_others("Shop", (*OWN, *OTHERS)) == OTHERS
    for stream in OWN:
        check_stream("Shop", stream, ())
        for group in spec_of(stream).groups:
            check_inputs(group)
            check_inputs(replace(group, reads=()))


@pytest.mark.parametrize("stream", OTHERS)
def test_a_group_reads_a_stream_of_the_mesh_with_permission_only(stream: str) -> None:
    spec = spec_of(stream)
    permitted = with_reads(spec, reads_of(spec))
    assert [group.reads for group in permitted.groups] == [(stream,)]
    check_inputs(permitted.groups[0])
    for reads in ((), ("mesh-Other-Orders",)):
        with pytest.raises(MeshError, match="MESH-C135"):
            check_inputs(replace(spec.groups[0], reads=reads))
    assert with_reads(permitted, {}) == spec


@pytest.mark.parametrize("stream", OTHERS)
def test_a_group_of_an_earlier_version_reads_streams_of_apps_and_no_records(stream: str) -> None:
    (group,) = spec_of(stream).groups
    assert group.reads is None
    if stream.startswith(("mesh-Bank", "mesh-Shop-2")):
        check_inputs(group)
        return
    with pytest.raises(MeshError, match="MESH-C135"):
        check_inputs(group)
