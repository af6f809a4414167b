"""Choice of the backups that go when one was made."""

from __future__ import annotations

import pytest

from mesh.control.restoring import superseded
from mesh.model.backup import BackupRecord


def record(revision: str) -> BackupRecord:
    return BackupRecord("A", revision, 0, "", 0, 0)


@pytest.mark.parametrize(
    ("made", "kept", "gone"),
    [
        ("20261121T4", 3, ["20261121T1"]),
        ("20261121T4", 1, ["20261121T1", "20261121T2", "20270101T1"]),
        ("20261121T4", 4, []),
        ("20261121T4", 0, []),
        # The clock of another manager was ahead: the new one is not the newest by name.
        ("20261121T0", 3, ["20261121T1"]),
    ],
)
def test_the_oldest_others_go_and_never_the_new_one(made: str, kept: int, gone: list[str]) -> None:
    earlier = [record(r) for r in ("20261121T1", "20261121T2", "20270101T1")]
    records = sorted([*earlier, record(made)], key=lambda one: one.revision)
    assert [one.revision for one in superseded(records, record(made), kept)] == gone
