"""Numbers of groups."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mesh.functions.vectors import Vector
from mesh.model.types import AttributeType
from mesh.operators.select.groups import Groups


def test_groups_of_forgotten_instances_begin_anew() -> None:
    groups = Groups([AttributeType.STRING, AttributeType.DOUBLE])
    keys = [
        Vector(AttributeType.STRING, pa.array(["a", None, "null", "a", "b"])),
        Vector(AttributeType.DOUBLE, np.array([0.0, 1.0, 1.0, -0.0, np.nan])),
    ]
    instance, kind = np.array([0, 0, 0, 1, 1]), np.zeros(5, dtype=np.int8)
    assert groups.number(keys, instance, kind).tolist() == [0, 1, 1, 2, 3]
    assert groups.forget(np.array([0])).tolist() == [0, 1]
    again = Groups([AttributeType.STRING, AttributeType.DOUBLE])
    again.restore({0: groups.to_arrow(0, len(groups))}, groups.free)
    for one in (groups, again):
        assert one.number(keys, instance[::-1].copy(), kind).tolist() == [1, 0, 4, 5, 6]
        assert one.number(keys, instance, kind).tolist() == [7, 4, 4, 2, 3]
