"""Fixtures of the tests of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory and an environment without a cluster's context."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("SERVER", "USER", "PASSWORD", "CA", "NATS_URL", "CONTEXT"):
        monkeypatch.delenv(f"MESH_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path
