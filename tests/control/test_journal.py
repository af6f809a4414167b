"""The story of an app, out of the journal of the cluster."""

from __future__ import annotations

from mesh.control.journal import JournalEntry, story


def test_a_story_has_what_the_cluster_did_beside_the_app() -> None:
    told = [
        JournalEntry("leads", by="manager m1", at_ms=1),
        JournalEntry("deployed app A", by="user ada", at_ms=2, app="A"),
        JournalEntry("deployed app B", by="user ada", at_ms=3, app="B"),
        JournalEntry("is ready", by="worker w9", at_ms=4, worker="w9"),
        JournalEntry("placed A-g-1 on w1", by="manager m1", at_ms=5, app="A", worker="w1"),
        JournalEntry("leads", by="manager m2", at_ms=8),
        # Noted while it was cut off, and stored late.
        JournalEntry("stops A-g-1", by="worker w1", at_ms=7, worker="w1"),
    ]
    found = [f"{entry.at_ms} {entry.text}" for entry in story(told, "A")]
    assert found == ["2 deployed app A", "5 placed A-g-1 on w1", "7 stops A-g-1", "8 leads"]
    assert story(told, "C") == []
