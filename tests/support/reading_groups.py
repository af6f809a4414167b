"""Groups that read streams of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.plan.build import plan

if TYPE_CHECKING:
    from mesh.model.app import AppSpec

OTHERS = (
    "mesh-Bank-Orders", "mesh-Bank-Orders-by-item-3", "mesh-Shop-2-Orders", "mesh-Shop-errors-",
    "mesh-topics-", "mesh_journal", "mesh_audit", "KV_mesh_apps", "OBJ_mesh_state",
)  # fmt: skip


def spec_of(stream: str) -> AppSpec:
    source = f"@source(type='nats', stream='{stream}')"
    text = f"@App:name('Shop') {source} define stream S (a int); from S select a insert into T;"
    return plan(text).spec
