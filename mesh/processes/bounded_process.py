"""A process that computes for another one, with a time limit and bounded memory for each call.

A manager plans in such a process, and a worker answers on-demand queries in one.  Either may take
minutes for a hostile text.  In the caller's own process, in any thread, it would hold up the loop
that renews the leader's lease or sends heartbeats.

The process is started with the first call and kept.  It ends with its caller, because its pipe is
closed then, and no call outlives its limit by more than ``GRACE_S``, because of an alarm.

The kernel kills such a child when its parent ends, however it ends.
"""

from __future__ import annotations

import contextlib
import ctypes
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
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


T = TypeVar("T")

#: Time for the process to import the planner, on a busy machine.
START_S: Final = 60.0
#: Memory that a call may use beyond what the imports have taken.
MEMORY_BYTES: Final = 2 * 2**30
#: Time after which a process without a parent ends, beyond the limit of its call.
GRACE_S: Final = 5.0
#: The process yields to its caller when cores are busy.
NICE: Final = 5
#: Linux: sizes of the process in pages, the address space first.
_STATM: Final = Path("/proc/self/statm")

_PR_SET_PDEATHSIG: Final = 1


class Exceeded(Exception):
    """A call broke a limit; the reason as a sentence."""


class Process(Protocol):
    """A ``BoundedProcess``."""

    def call(self, limit_s: float, function: Callable[..., T] | str, *arguments: object) -> T:
        """See ``BoundedProcess.call``."""
        ...

    def stop(self) -> None:
        """See ``BoundedProcess.stop``."""
        ...


class BoundedProcess:
    """The process, and the caller's end of the pipe to it; calls wait for each other.

    Args:
        preload: module that the process imports before its first call.
        exceeded: the error for a call that broke a limit, from the reason.
        environment: variables of the process, besides those of the caller.
    """

    def __init__(
        self,
        preload: str,
        exceeded: Callable[[str], MeshError],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._preload, self._exceeded = preload, exceeded
        self._environment = environment or {}
        self._turn = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None

    def call(self, limit_s: float, function: Callable[..., T] | str, *arguments: object) -> T:
        """The result of a function of a module, computed by the process; blocks.

        Args:
            limit_s: time limit of the call, seconds.
            function: itself, or ``module:name`` if the caller is not to import its module.
            arguments: its arguments, which can be pickled.

        Raises:
            MeshError: errors of ``function``; ``exceeded`` when it takes longer than ``limit_s``,
                needs too much memory, or recurses too deeply.
        """
        with self._turn:
            pipe = self._started()
            if limit_s <= 0:
                raise self._exceeded("It waited too long for its turn.")
            try:
                pipe.send((limit_s, function, arguments))
                if not pipe.poll(limit_s):
                    raise self._exceeded(f"It took longer than {limit_s:.3g} s.")
                result = pipe.recv()
            except (EOFError, OSError) as error:
                self.stop()
                raise self._exceeded("Its process died.") from error
            except BaseException:
                self.stop()
                raise
        if isinstance(result, Exceeded):
            raise self._exceeded(str(result))
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
                [sys.executable, "-P", "-c", self._program(number)],
                stdin=subprocess.DEVNULL,
                pass_fds=[number],
                start_new_session=True,
                env={**_environment(), **self._environment},
            )
        try:
            is_ready = self._pipe.poll(START_S) and self._pipe.recv()
        except (EOFError, OSError):
            is_ready = False
        if not is_ready:
            self.stop()
            raise MeshError("MESH-A503", f"the process of {self._preload} did not start")
        return self._pipe

    def _program(self, number: int) -> str:
        return f"from {__name__} import serve; serve({number}, {self._preload!r})"


def _environment() -> dict[str, str]:
    """The variables of the process: none of ours, which hold the password of NATS."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("MESH_")}
    return {**variables, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _limit_memory() -> None:
    if not _STATM.exists():
        return
    taken = int(_STATM.read_text().split()[0]) * resource.getpagesize()
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY_BYTES, most))


def serve(number: int, preload: str) -> None:
    """Compute the calls that arrive on the pipe of this number, until its other end is closed."""
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        _serve(Connection(number), preload)


def _serve(pipe: Connection, preload: str) -> None:
    importlib.import_module(preload)
    os.nice(NICE)
    _limit_memory()
    pipe.send(True)
    while True:
        limit_s, function, arguments = pipe.recv()
        signal.setitimer(signal.ITIMER_REAL, limit_s + GRACE_S)
        result = _result(function, arguments)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        pipe.send(result)


def _result(function: Callable[..., object] | str, arguments: tuple[object, ...]) -> object:
    """The value in a tuple, or the error."""
    try:
        if isinstance(function, str):
            module, _, name = function.partition(":")
            return (getattr(importlib.import_module(module), name)(*arguments),)
        return (function(*arguments),)
    except MeshError as error:
        return error
    except MemoryError:
        return Exceeded(f"It needs more than {MEMORY_BYTES >> 20} MB of memory.")
    except RecursionError:
        return Exceeded("It is nested too deeply.")


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
