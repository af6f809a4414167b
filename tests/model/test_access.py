"""Permissions and grants, as they are compared."""

from __future__ import annotations

import pytest

from mesh.model.access import ALL, Grant, Permission, permissions_of, within


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
