"""The examples."""

from __future__ import annotations

from tests.support.paths import ROOT

FOLDER = ROOT / "examples"
