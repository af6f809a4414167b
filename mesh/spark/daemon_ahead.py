"""A daemon that imports its modules while Java starts, and is there when Spark asks for one.

Spark starts its daemon when the first task needs a process, seconds after Java; the imports take
as long again.  So a session starts a process which imports first (``start``, ``take``).  The
program that Spark starts gives it the standard streams and the environment (``hand_over``), and
from then on stands for it: it ends when the daemon ends, and Spark ends the daemon by closing its
standard input, as always.

Only the first daemon is ready ahead.  Later ones, and all if anything fails here, import for
themselves.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from mesh.processes.bounded_process import die_with_parent, outlive_parent

#: Environment variable: path of the socket of the process that is ready.
VARIABLE: Final = "MESH_SPARK_DAEMON"
#: First argument of that process; the second is the descriptor of its socket.
AHEAD: Final = "ahead"
#: Number of the standard streams.
_STREAMS: Final = 3


def listen(path: Path) -> socket.socket:
    """The socket of the process, for ``start``; Java must start later than this, to know of it.

    Args:
        path: in a directory that is closed to others.
    """
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    os.environ[VARIABLE] = str(path)
    return listening


def start(command: list[str], listening: socket.socket, environment: dict[str, str]) -> None:
    """Start the process, which ends with this one unless Spark has taken it.

    Args:
        command: the program, without ``ahead`` and the descriptor; called from the main thread.
        listening: of ``listen``; it is closed here.
        environment: additions to that of this process.
    """
    with listening:
        process = subprocess.Popen(
            [*command, AHEAD, str(listening.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[listening.fileno()],
            env={**os.environ, **environment},
            preexec_fn=die_with_parent(),
        )
    # The exit status has to be taken, or the ended process stays in the table.
    threading.Thread(target=process.wait, name="daemon-ahead", daemon=True).start()


def hand_over() -> None:
    """Give the standard streams to the process that is ready; returns only if there is none."""
    path = os.environ.pop(VARIABLE, None)
    if path is None:
        return
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(path)
        socket.send_fds(link, [b"\0"], list(range(_STREAMS)))
        link.sendall(json.dumps([sys.argv, dict(os.environ)]).encode())
        link.shutdown(socket.SHUT_WR)
    # Another daemon has it, or it has failed.
    except OSError:
        link.close()
        return
    # To wait for the end of the connection takes a few pages, and no interpreter.
    os.dup2(link.fileno(), 0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with suppress(OSError):
        os.execvp("cat", ["mesh.spark.daemon"])
    while os.read(0, 1024):
        pass
    os._exit(0)


def take(descriptor: int) -> None:
    """Wait until Spark asks for a daemon, and take its streams, arguments and environment.

    The connection to the program that Spark has started stays open until this process ends.
    """
    with socket.socket(fileno=descriptor) as listening:
        link, _ = listening.accept()
        Path(listening.getsockname()).unlink(missing_ok=True)
    _, streams, _, _ = socket.recv_fds(link, 1, _STREAMS)
    with link.makefile("rb") as said:
        arguments, environment = json.loads(said.read())
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    sys.argv[:] = arguments
    os.environ.clear()
    os.environ.update(environment)
    added = filter(None, environment.get("PYTHONPATH", "").split(":"))
    sys.path += [one for one in added if one not in sys.path]
    # The session's death ends Java, which ends it.
    outlive_parent()
    link.detach()
