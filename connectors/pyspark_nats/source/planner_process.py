"""Watchdog of the process that plans a streaming query: it must not outlive Spark's JVM.

The JVM starts the process with ``python -m`` and talks to it over a socket.  The process notices
the end of the JVM at its next read.  A planner that waits for a server, which may have ended as
well, reads only after ``timeoutS``.  So a thread watches the parent process.

The kernel could kill it (``PR_SET_PDEATHSIG``), but it would do so at the end of the JVM's *thread*
that started it, and only on Linux.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Final

#: The module that the JVM runs for a source; other programs may use a reader directly.
_MODULE: Final = "pyspark.sql.streaming.python_streaming_source_runner"
#: Interval of the checks of the parent, seconds.
_LOOK_S: Final = 1.0
_NAME: Final = "ends-with-jvm"


def end_with_jvm() -> None:
    """End a planner process soon after the JVM; idempotent.

    No effect in other processes.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    is_watched = any(thread.name == _NAME for thread in threading.enumerate())
    if spec is not None and spec.name == _MODULE and not is_watched:
        end_with_parent()


def end_with_parent(look_s: float = _LOOK_S) -> None:
    """End this process with its parent, which is checked every ``look_s`` seconds."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(look_s)
        # The parent is gone, so no cleanup is needed.
        os._exit(1)

    threading.Thread(target=watch, name=_NAME, daemon=True).start()
