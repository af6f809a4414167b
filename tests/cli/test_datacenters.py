"""What the commands of two datacenters print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.cli import datacenters
from mesh.jetstream.datacenters import FollowedStream

if TYPE_CHECKING:
    import pytest


def test_a_promoted_input_follows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    datacenters._show([FollowedStream("mesh-Counts-Numbers", 120, "", 0, -1.0)])
    *_, row, _ = capsys.readouterr().out.splitlines()
    assert row.split() == ["mesh-Counts-Numbers", "120", "nothing"]
