"""Statuses of a cluster."""

from __future__ import annotations

from typing import Any

from mesh.control.lifecycle import InstanceView
from mesh.manager.nodes import NodeView


def one(name: str, state: str = "running", **values: Any) -> InstanceView:
    return InstanceView(name, "g", "w1", 1, state, **values)


def node(name: str, presence: str = "alive", role: str = "worker") -> NodeView:
    return NodeView(name, role, presence, role == "manager", True, "", 1, 0, 0.0, 0)
