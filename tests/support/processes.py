"""Waiting for a state that another process does not announce: a line in its log, its monitoring."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds from one look to the next.
_LOOK_S: Final = 0.05


def look_until(
    holds: Callable[[], bool], process: subprocess.Popen[bytes], what: str, timeout_s: float
) -> None:
    """Poll until ``holds``, and wait for ``process`` meanwhile: it must not end.

    Args:
        holds: queries the process, or reads its output.
        process: the process with that state.
        what: its name in the error.
        timeout_s: seconds.
    """
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, f"not within {timeout_s:g} s: {what}"
        try:
            code = process.wait(_LOOK_S)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError(f"ended with {code}: {what}")
