"""A process that computes plans, with a time limit and bounded memory for each call.

Planning is quadratic in places, and a text of a megabyte may take minutes.  In the manager's own
process, in any thread, it would hold up the loop that renews the leader's lease.

The process is started with the first call and kept.  It ends with the manager, because its pipe is
closed then, and no call outlives its limit by more than ``GRACE_S``, because of an alarm.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import signal
import subprocess
import sys
import threading
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

#: Time for the process to import the planner, on a busy machine.
START_S: Final = 60.0
#: Memory that a call may use beyond what the imports have taken.
MEMORY_BYTES: Final = 2 * 2**30
#: Time after which a process without a parent ends, beyond the limit of its call.
GRACE_S: Final = 5.0
#: The planner yields to the manager when cores are busy.
NICE: Final = 5
#: Linux: sizes of the process in pages, the address space first.
_STATM: Final = Path("/proc/self/statm")
_PRELOAD: Final = "mesh.manager.planning"


class PlanProcess:
    """The process, and the manager's end of the pipe to it; calls wait for each other."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None

    def call(self, limit_s: float, function: Callable[..., T], *arguments: Any) -> T:
        """The result of a function of a module, computed by the process; blocks.

        Raises:
            MeshError: errors of ``function``; MESH-A413 when it takes longer than ``limit_s``
                seconds, needs too much memory, or recurses too deeply.
        """
        with self._turn:
            pipe = self._started()
            try:
                pipe.send((limit_s, function, arguments))
                if limit_s <= 0 or not pipe.poll(limit_s):
                    raise _exceeded(f"It took longer than {limit_s:g} s.")
                result = pipe.recv()
            except (EOFError, OSError) as error:
                self.stop()
                raise _exceeded("Its process died.") from error
            except BaseException:
                self.stop()
                raise
        if isinstance(result, MeshError):
            raise result
        value: T = result[0]
        return value

    def stop(self) -> None:
        """Kill the process; the next call starts another."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        if self._pipe is not None:
            self._pipe.close()
        self._child = self._pipe = None

    def _started(self) -> Connection:
        if self._pipe is not None and self._child is not None and self._child.poll() is None:
            return self._pipe
        self.stop()
        self._pipe, theirs = Pipe()
        with theirs:
            number = theirs.fileno()
            # A session of its own: Ctrl-C is for the manager, which closes the pipe.
            self._child = subprocess.Popen(
                # -P: modules come from the manager's path, not from the current directory.
                [sys.executable, "-P", "-c", f"from {__name__} import serve; serve({number})"],
                stdin=subprocess.DEVNULL,
                pass_fds=[number],
                start_new_session=True,
                env=_environment(),
            )
        try:
            is_ready = self._pipe.poll(START_S) and self._pipe.recv()
        except (EOFError, OSError):
            is_ready = False
        if not is_ready:
            self.stop()
            raise MeshError("MESH-A503", "the planner's process did not start")
        return self._pipe


def _exceeded(detail: str) -> MeshError:
    return MeshError(
        "MESH-A413",
        "the app can't be planned within its limits",
        detail=detail,
        hint="Divide the app: one inserts into a stream, another reads it.  "
        "manager.plan_timeout_s sets the time.",
    )


def _environment() -> dict[str, str]:
    """The variables of the process: none of ours, which hold the password of NATS."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MESH_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _limit_memory() -> None:
    if not _STATM.exists():
        return
    taken = int(_STATM.read_text().split()[0]) * resource.getpagesize()
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY_BYTES, most))


def serve(number: int) -> None:
    """Compute the calls that arrive on the pipe of this number, until its other end is closed."""
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        _serve(Connection(number))


def _serve(pipe: Connection) -> None:
    importlib.import_module(_PRELOAD)
    os.nice(NICE)
    _limit_memory()
    pipe.send(True)
    while True:
        limit_s, function, arguments = pipe.recv()
        signal.setitimer(signal.ITIMER_REAL, limit_s + GRACE_S)
        result = _result(function, arguments)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        pipe.send(result)


def _result(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """The value in a tuple, or the error."""
    try:
        return (function(*arguments),)
    except MeshError as error:
        return error
    except MemoryError:
        return _exceeded(f"It needs more than {MEMORY_BYTES >> 20} MB of memory.")
    except RecursionError:
        return _exceeded("It is nested too deeply.")
