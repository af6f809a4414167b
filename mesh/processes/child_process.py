"""Children that the kernel kills when their parent ends, however it ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_PDEATHSIG: Final = 1


def die_with_parent() -> Callable[[], None] | None:
    """A ``preexec_fn`` that has the kernel kill the child when its parent ends, however it ends.

    None where the kernel can't (macOS): there a child has to watch for itself.  The parent is the
    *thread* that forks, so start children from threads that live as long as the process.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # The parent may have gone between the fork and the request.
        if os.getppid() != parent:
            os._exit(1)

    return ask


def outlive_parent() -> None:
    """Undo ``die_with_parent``; called by the child."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)
