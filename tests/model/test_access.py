"""Permissions and grants, as they are compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.errors import MeshError
from mesh.model.access import (
    ALL,
    Grant,
    Permission,
    check_inputs,
    check_stream,
    permissions_of,
    streams_of_others,
    within,
)
from tests.support.reading_groups import OTHERS, spec_of

OWN = ("ORDERS", "KV_orders", "mesh-Shop-Orders", "mesh-Shop-Orders-by-item-3")


@pytest.mark.parametrize(
    ("words", "may"),
    [
        (["view"], {"apps.view", "data.read"}),
        (["manage"], {"apps.manage", "data.write", "nodes.manage"}),
        (["SAPP.siddhiApp.manage"], {"apps.view", "apps.manage"}),
        (["SIM.simulator.manage", "monitor"], {"apps.view", "data.write", "monitor"}),
        (["operator"], {"apps.view", "monitor", "nodes.manage"}),
        (["SAPP.siddhiApp.view"], {"apps.view"}),
        (["SIM.simulator.view"], {"apps.view"}),
        (["BRM.businessrules.viewer"], {"apps.view"}),
        (["BRM.businessrules.manager"], {"apps.view", "apps.manage"}),
        (["MON.viewer"], {"apps.view", "monitor"}),
        (["MON.metrics.manager"], {"monitor"}),
        (
            ["MON.manager"],
            {"apps.view", "monitor", "apps.manage", "data.write", "nodes.manage"},
        ),
    ],
)
def test_words_of_before_stand_for_permissions(words: list[str], may: set[str]) -> None:
    assert permissions_of(words) == may


def test_a_limit_leaves_what_both_sides_give() -> None:
    view = frozenset({Permission.APPS_VIEW})
    assert within([Grant(ALL)], Grant(view, "Shop*")) == (Grant(view, "Shop*"),)
    assert within([Grant(view, "Shop*")], Grant(ALL)) == (Grant(view, "Shop*"),)
    assert within([Grant(view, "Shop*")], Grant(ALL, "ShopA")) == (Grant(view, "ShopA"),)
    assert within([Grant(view, "Other")], Grant(ALL, "Shop*")) == ()
    # The letter that a wildcard might be taken for.
    assert within([Grant(ALL)], Grant(view, "x*")) == (Grant(view, "x*"),)
    assert within([Grant(ALL, "Sh*")], Grant(view, "Shx*")) == (Grant(view, "Shx*"),)
    assert within([Grant(view, "Sh*")], Grant(ALL, "*op")) == ()
    assert within([Grant(view, "S*")], Grant(ALL, "S*op")) == (Grant(view, "S*op"),)
    assert within([Grant(view)], Grant(frozenset({Permission.ADMIN}))) == ()


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
