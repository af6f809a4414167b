"""Certificates that sign themselves."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from mesh.clock import SystemClock
from mesh.http import certificate as certificates

if TYPE_CHECKING:
    from pathlib import Path


def test_the_certificates_key_is_its_owners(tmp_path: Path) -> None:
    _, key = certificates.self_signed(tmp_path, SystemClock().wall_ms())
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
