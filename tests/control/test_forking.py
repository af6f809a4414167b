"""Beginnings of forks, decided from logs and backups."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.control.forking import Beginning, ForkCandidate, decide, place_of
from mesh.control.restoring import JetStreamState
from mesh.errors import MeshError

WHOLE = {"in": JetStreamState(1, 1, 100)}
CUT = {"in": JetStreamState(1, 11, 100)}


def begin(place: str, **more: Any) -> Beginning:
    values: dict[str, Any] = {
        "logs": WHOLE, "last_before": {}, "reaches": {}, "stateful": (), "backups": (),
    }  # fmt: skip
    return decide(place_of(place), **(values | more))


def test_a_group_without_state_begins_at_any_position_that_exists() -> None:
    assert begin("50", last_before={"in": 49}) == Beginning(begins={"in": 49})
    assert begin("50", logs=CUT, last_before={"in": 49}) == Beginning(begins={"in": 49})
    with pytest.raises(MeshError, match="no longer exists"):
        begin("5", logs=CUT, last_before={"in": 4})


def test_a_state_is_that_of_the_last_backup_before_the_place() -> None:
    backups = [
        ForkCandidate("late", {"in": 60}),
        ForkCandidate("mid", {"in": 40}),
        ForkCandidate("old", {}),
    ]
    at = {"last_before": {"in": 49}, "reaches": {"in": 49}, "stateful": ("g",)}
    assert begin("50", backups=backups, **at).backup == "mid"
    gone = [ForkCandidate("mid", {"in": 40}, ("in is gone",)), ForkCandidate("old", {"in": 9})]
    assert begin("50", backups=gone, **at).backup == "old"


def test_without_a_state_that_fits_it_begins_with_a_whole_log() -> None:
    at = {"last_before": {"in": 49}, "reaches": {"in": 49}, "stateful": ("g",)}
    misfit = [ForkCandidate("mid", {"in": 40}, misfit="query q changed")]
    found = begin("50", backups=misfit, **at)
    assert (found.backup, found.begins) == ("", {})
    assert found.notes[0] == "No state is taken: query q changed."
    with pytest.raises(MeshError) as error:
        begin("50", logs=CUT, backups=misfit, **at)
    assert error.value.code == "MESH-A410"


def test_a_backup_is_taken_by_name_or_as_the_newest() -> None:
    revision = "20261121T213307-482"
    assert begin("backup", backups=[ForkCandidate(revision, {})]).backup == revision
    assert begin(revision, backups=[ForkCandidate(revision, {})]).backup == revision
    with pytest.raises(MeshError) as error:
        begin(revision)
    assert error.value.code == "MESH-A404"
    with pytest.raises(MeshError) as error:
        begin("backup", backups=[ForkCandidate(revision, {}, ("in has lost messages 1 to 3",))])
    assert error.value.code == "MESH-A410"


def test_the_start_is_the_oldest_message_and_says_what_is_gone() -> None:
    assert begin("start") == Beginning()
    assert begin("start", logs=CUT).notes == (
        "Retention has taken messages 1 to 10 of in: it begins after them.",
    )
