"""Cases of signatures."""

from __future__ import annotations

from tests.support import paths
from tools.signatures import read_cases

CASES = paths.CASES / "signatures"
KINDS = read_cases(CASES / "extensions.txt")
