"""A real mosquitto for tests of MQTT."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mesh.jetstream.server import free_port
from mesh.processes.bounded_process import die_with_parent
from tests.support.processes import look_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def listens(port: int) -> bool:
    """Whether a process accepts connections on this port of 127.0.0.1."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def broker(
    directory: Path, tls: Mapping[str, str] | None = None, readable: str = "", more: str = ""
) -> Iterator[str]:
    """The URL of a broker on a free port; anybody may do anything there.

    With ``tls``, the paths of ``cert`` and ``key``, clients need a certificate of ``cert``; with
    ``readable`` they may do nothing but subscribe to that topic.  ``more``: lines of the
    configuration.
    """
    binary = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if binary is None:
        pytest.skip("mosquitto is not installed")
    port = free_port()
    configuration = directory / "mosquitto.conf"
    configuration.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nuser root\n"
        f"max_queued_messages 0\nmax_inflight_messages 0\n{more}"
    )
    if tls is not None:
        with configuration.open("a") as file:
            file.write(f"cafile {tls['cert']}\ncertfile {tls['cert']}\nkeyfile {tls['key']}\n")
            file.write("require_certificate true\n")
    if readable:
        plugin = next(Path("/usr/lib").glob("*/mosquitto_dynamic_security.so"), None)
        if plugin is None:
            pytest.skip("mosquitto's plugin for access is not installed")
        access = {
            "defaultACLAccess": {"publishClientReceive": True, "subscribe": False},
            "roles": [{"rolename": "r", "acls": [
                {"acltype": "subscribePattern", "topic": readable, "allow": True}]}],
            "groups": [{"groupname": "all", "roles": [{"rolename": "r"}]}],
            "anonymousGroup": "all",
        }  # fmt: skip
        (directory / "access.json").write_text(json.dumps(access))
        with configuration.open("a") as file:
            file.write(f"plugin {plugin}\nplugin_opt_config_file {directory}/access.json\n")
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [binary, "-c", str(configuration)], stdout=log, stderr=log,
            preexec_fn=die_with_parent(),
        )  # fmt: skip
    try:
        look_until(lambda: listens(port), process, "mosquitto listens", 10)
        yield f"{'tcp' if tls is None else 'ssl'}://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)
