"""A real RabbitMQ server; its start takes several seconds, so tests that use it are extended."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from mesh.jetstream.server import free_ports
from mesh.processes.bounded_process import die_with_parent
from tests.support.mosquitto import listens
from tests.support.processes import look_until

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The script without the part of Debian that changes the user.
_SCRIPT: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


@contextlib.contextmanager
def server(directory: Path) -> Iterator[str]:
    """The URI of a server on free ports, with its files below ``directory``."""
    if not _SCRIPT.exists():
        pytest.skip("rabbitmq-server is not installed")
    port, names, between = free_ports(3)
    (directory / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
    (directory / "enabled_plugins").write_text("[].\n")
    environment = {
        **os.environ,
        "HOME": str(directory),
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"mesh{port}@localhost",
        "RABBITMQ_DIST_PORT": str(between),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
    }
    with (directory / "output").open("wb") as log:
        process = subprocess.Popen(
            [_SCRIPT], stdout=log, stderr=log, env=environment, cwd=directory,
            preexec_fn=die_with_parent(), start_new_session=True,
        )  # fmt: skip
    try:
        look_until(lambda: listens(port), process, "rabbitmq listens", 90)
        yield f"amqp://guest:guest@127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait(30)
        # The daemon with the names of nodes outlives the node.
        daemon = shutil.which("epmd")
        if daemon is not None:
            subprocess.run([daemon, "-kill"], env=environment, capture_output=True, check=False)
