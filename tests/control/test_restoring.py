"""Choice of the backups that go when one was made.

The cut between history and the live stream, from the state of the stream.
"""

from __future__ import annotations

import pytest

from mesh.control.restoring import JetStreamState, cuts, progress, superseded
from mesh.errors import MeshError
from mesh.model.backup import BackupRecord
from mesh.model.begin import parse_start_position
from mesh.model.history import HistoryReport


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


NOON = "2026-01-01T12:00:00Z"
NOON_MS = parse_start_position(NOON).time_ms


def cut(end: str, first: int, last: int, asked: int = 0, now_ms: int = NOON_MS + 1) -> int:
    states = {"S": JetStreamState(0, first, last)}
    return cuts(parse_start_position(end), states, {"S": asked} if asked else {}, now_ms)["S"]


@pytest.mark.parametrize(
    ("end", "first", "last", "asked", "found"),
    [
        # The whole stream is there, or all of it after the cut.
        ("5", 1, 9, 0, 5),
        ("9", 1, 9, 0, 9),
        ("5", 6, 9, 0, 5),
        (NOON, 1, 9, 4, 4),
        (NOON, 3, 9, 4, 4),
        # No message is older.
        (NOON, 1, 9, 0, 0),
        (NOON, 1, 0, 0, 0),
    ],
)
def test_a_cut_is_the_last_sequence_of_the_past(
    end: str, first: int, last: int, asked: int, found: int
) -> None:
    assert cut(end, first, last, asked) == found


@pytest.mark.parametrize(
    ("end", "first", "last", "asked", "code"),
    [
        # Messages after it are gone.
        ("5", 7, 9, 0, "MESH-A410"),
        # All older ones are gone, and perhaps later ones with them.
        (NOON, 7, 9, 6, "MESH-A410"),
        # The stream is not as far.
        ("10", 1, 9, 0, "MESH-A422"),
        ("latest", 1, 9, 0, "MESH-A422"),
    ],
)
def test_an_end_that_leaves_a_gap_is_refused(
    end: str, first: int, last: int, asked: int, code: str
) -> None:
    with pytest.raises(MeshError) as error:
        cut(end, first, last, asked)
    assert error.value.code == code


def test_a_time_of_the_future_is_no_end() -> None:
    with pytest.raises(MeshError, match="MESH-A422"):
        cut(NOON, 1, 9, 9, now_ms=NOON_MS - 1)


def test_streams_divided_by_key_have_no_sequence_in_common() -> None:
    states = {"S0": JetStreamState(0, 1, 9), "S1": JetStreamState(0, 1, 9)}
    with pytest.raises(MeshError, match="MESH-A422"):
        cuts(parse_start_position("5"), states, {}, NOON_MS)


def test_progress_has_rows_rate_and_the_time_left() -> None:
    told = HistoryReport(rows=2_000_000, of=10_000_000, rows_per_s=400_000.0)
    assert progress("Orders", told) == (
        "its history is run: Orders, 2,000,000 of 10,000,000 rows, 400,000 rows/s, 20 s left"
    )
    assert "of" not in progress("Orders", HistoryReport(rows=5)).split()
