"""Plans of on-demand queries, and names that they keep free."""

from __future__ import annotations

import pytest

from mesh.errors import MeshError
from mesh.manager.query_parts import plan_query
from mesh.plan.build import plan
from tests.support.stored_states import APP


def test_a_query_has_no_table_of_another_group() -> None:
    """There each would look empty to the other's state."""
    text = APP.replace(
        "from Orders select item, n insert into Recent;",
        "@dist(execGroup='other') from Orders select item insert into Unused;\n"
        "from Orders select item, n insert into Recent;",
    )
    spec = plan(text).spec
    groups = tuple((group.name, group.text) for group in spec.groups)
    query = "from Prices on (Unused.item == Prices.item) in Unused select item"
    with pytest.raises(MeshError, match="MESH-P900"):
        plan_query(text, groups, query)
    assert plan_query(text, groups, "from Unused").group == "other"
    assert plan_query(APP, groups[:1], query).group == "default"


def test_no_stream_has_the_subject_of_queries() -> None:
    with pytest.raises(MeshError, match="MESH-P214"):
        plan(APP.replace("insert into Seen", "insert into _query"))
