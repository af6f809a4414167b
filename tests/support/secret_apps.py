"""An app with a secret."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

VALUE = "correct-horse-battery"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_bytes(base64.b64encode(os.urandom(32)) + b"\n")
    return path
