"""Views of nodes: who leads, what each worker runs, and why one admits nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.control.snapshot import Revisioned
from mesh.errors import MeshError
from mesh.manager.nodes import Leadership, NodeView, node_views, worker_view
from mesh.model.cluster import NodeRecord, NodeRole
from tests.support.cluster_lines import SETTINGS, snapshot

LINE = (
    "now=10 lease=m1@40 workers=w2:10:cap3:+gpu=true,w1:8,w3:2 apps=A:g*2,B:h "
    "placed=A-g-1:w2@5,A-g-2:w1@5,B-h-1:w2@5>"
)


def views(line: str = LINE) -> dict[str, NodeView]:
    return {one.id: one for one in node_views(snapshot(line), SETTINGS)}


def test_nodes_are_listed_by_role_and_name() -> None:
    view = snapshot(LINE)
    manager = NodeRecord("m1", NodeRole.MANAGER, "m1-1", "http://m1", 4, ready=True)
    other = replace(manager, id="m2")
    nodes = (*view.nodes, Revisioned(other, 3, 9.0), Revisioned(manager, 2, 9.5))
    assert view.lease is not None
    lease = replace(view.lease, seen_at_s=9.5)
    found = node_views(replace(view, nodes=nodes, lease=lease), SETTINGS)
    assert [(one.id, one.role) for one in found] == [
        ("m1", "manager"), ("m2", "manager"), ("w1", "worker"), ("w2", "worker"), ("w3", "worker"),
    ]  # fmt: skip
    assert [one.id for one in found if one.leads] == ["m1"]
    assert found[0].last_heartbeat_ago_s == 0.5
    # The term of one that was last heard of at the beginning is over.
    assert not any(one.leads for one in node_views(replace(view, nodes=nodes), SETTINGS))
    assert {one.admits for one in found[:2]} == {""}


def test_a_view_counts_what_is_placed_and_says_how_long_a_worker_is_silent() -> None:
    found = views()
    assert {name: one.instances for name, one in found.items()} == {"w1": 1, "w2": 2, "w3": 0}
    assert [found[name].presence for name in ("w2", "w1", "w3")] == ["alive", "suspect", "gone"]
    assert found["w1"].last_heartbeat_ago_s == 2.0
    assert (found["w2"].capacity, found["w2"].labels) == (3, ("gpu=true",))


def test_a_paused_app_leaves_no_instance_on_a_worker() -> None:
    view = snapshot(LINE)
    paused = tuple(
        replace(one, value=replace(one.value, paused=one.value.spec.name == "B"))
        for one in view.apps
    )
    found = {one.id: one.instances for one in node_views(replace(view, apps=paused), SETTINGS)}
    assert found["w2"] == 1


def test_a_worker_that_admits_nothing_says_why() -> None:
    found = views("now=10 lease=m1@40 workers=w1:10,w2:10:leaving,w3:10:starting")
    assert found["w1"].admits != found["w2"].admits
    assert found["w2"].why
    assert not found["w1"].why


def test_a_worker_is_found_by_its_name_and_others_are_named() -> None:
    view = snapshot(LINE)
    manager = Revisioned(NodeRecord("m1", NodeRole.MANAGER, "m1-1", "", 4), 3, 9.0)
    view = replace(view, nodes=(manager, *view.nodes))
    assert worker_view(view, SETTINGS, "w2").id == "w2"
    with pytest.raises(MeshError, match='worker "m1" is not there') as refusal:
        worker_view(view, SETTINGS, "m1")
    assert refusal.value.detail == "Workers are: w1, w2, w3."
    with pytest.raises(MeshError) as none:
        worker_view(snapshot("now=1"), SETTINGS, "w")
    assert none.value.detail == "Workers are: none."


def test_the_leader_is_who_says_so_of_itself() -> None:
    assert Leadership("m1", "m1").leads
    assert not Leadership("m1", "m2").leads
    assert not Leadership("m1", None).leads
