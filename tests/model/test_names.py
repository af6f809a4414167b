"""Names of subjects, streams and apps."""

from __future__ import annotations

import pytest

from mesh.model import names
from mesh.model.app import Channel
from tests.support.records import KEYED, SCHEMA


def test_subjects_and_streams_of_channels() -> None:
    plain = Channel("App", SCHEMA)
    assert (plain.subject(), plain.js_stream()) == ("mesh.App.S", "mesh-App-S")
    assert KEYED.subject(3) == "mesh.App.S.by.b.3"
    assert KEYED.js_stream(3) == "mesh-App-S-by-b-3"
    assert names.marker_subject("mesh-App-S") == "mesh._marker.mesh-App-S"


def test_markers_are_no_events_and_no_changes_of_tables() -> None:
    assert names.is_marker("mesh._marker.mesh-App-S.group-1")
    assert not names.is_marker(names.change_subject("mesh-App-S", "group"))
    assert not names.is_marker("mesh.App.S")


@pytest.mark.parametrize("name", ["", "a b", "a.b", "_a", "-a", "a>", "ü", "a" * 101])
def test_a_name_that_can_not_stand_in_a_subject_is_no_app_name(name: str) -> None:
    assert not names.is_app_name(name)
