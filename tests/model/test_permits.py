"""Streams that a group may read, as a worker compares them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.errors import MeshError
from mesh.model.permits import check_inputs, check_stream, streams_of_others
from tests.support.reading_groups import OTHERS, spec_of

OWN = ("ORDERS", "KV_orders", "mesh-Shop-Orders", "mesh-Shop-Orders-by-item-3")


def test_streams_of_the_app_and_of_others_outside_the_mesh_need_no_permission() -> None:
    assert streams_of_others("Shop", (*OWN, *OTHERS)) == OTHERS
    for stream in OWN:
        check_stream("Shop", stream, ())
        for group in spec_of(stream).groups:
            check_inputs(group)
            check_inputs(replace(group, reads=()))


@pytest.mark.parametrize("stream", OTHERS)
def test_a_group_of_an_earlier_version_reads_streams_of_apps_and_no_records(stream: str) -> None:
    (group,) = spec_of(stream).groups
    assert group.reads is None
    if stream.startswith(("mesh-Bank", "mesh-Shop-2")):
        check_inputs(group)
        return
    with pytest.raises(MeshError, match="MESH-C135"):
        check_inputs(group)
