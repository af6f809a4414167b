"""Connectors as they are found: ours, those of others, and those without their library."""

from __future__ import annotations

import tomllib

import pytest

from mesh.connect import registry
from mesh.connect.contract import library
from mesh.connect.spec import Role, Spec
from mesh.errors import MeshError
from tests.support.paths import ROOT


def test_ours_are_registered_as_those_of_others_are() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"][registry.GROUP] == dict(registry.ENTRY_POINTS)


def test_a_connector_without_its_library_is_not_offered_and_names_its_extra() -> None:
    absent = Spec("x", Role.SINK, "Doc.", extra="kafka", library="no_such_library")
    assert not absent.is_installed()
    kafka = registry.find(Role.SINK, "kafka")
    assert kafka is not None
    assert kafka.is_installed()
    assert "sink kafka" in registry.transports()
    with pytest.raises(MeshError) as raised:
        library("no_such_library", "kafka")
    assert raised.value.code == "MESH-C134"
    assert "nats-event-mesh[kafka]" in (raised.value.hint or "")
