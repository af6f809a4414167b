"""The state of a cluster, computed from one view of it."""

from __future__ import annotations

from dataclasses import replace

from mesh.control.cluster_state import cluster_state_of
from tests.support.cluster_lines import SETTINGS, snapshot


def test_new_sources_wait_for_enough_workers_that_take_them() -> None:
    settings = replace(SETTINGS, manager=replace(SETTINGS.manager, min_receivers=2))
    view = snapshot("now=10 lease=me@40 workers=w1:10,w2:10:queries apps=A:r!:g")
    found = cluster_state_of(view, settings)
    assert found.placement.waiting["A-r-1"].reason == "1 of at least 2 receivers ready"
    assert list(found.placement.where) == ["A-g-1"]
    both = snapshot("now=10 lease=me@40 workers=w1:10,w2:10 apps=A:r!:g")
    assert set(cluster_state_of(both, settings).placement.where) == {"A-r-1", "A-g-1"}
    # One that ran already moves to what is left.
    ran = snapshot("now=10 lease=me@40 workers=w1:10 apps=A:r! placed=A-r-1:w2@5")
    assert cluster_state_of(ran, settings).placement.where == {"A-r-1": "w1"}
