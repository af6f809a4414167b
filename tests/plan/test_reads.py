"""What a group may read, by the permission of its author."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.errors import MeshError
from mesh.model.access import check_inputs
from mesh.plan.reads import reads_of, with_reads
from tests.support.reading_groups import OTHERS, spec_of


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
