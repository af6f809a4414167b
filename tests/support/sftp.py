"""A real SFTP server of tests: OpenSSH's, for the user of the tests."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mesh.child_process import die_with_parent
from mesh.jetstream import server as nats

if TYPE_CHECKING:
    from collections.abc import Iterator

_SSHD = "/usr/sbin/sshd"
_WAIT_S = 60


@dataclass(frozen=True, slots=True)
class SftpServer:
    """A server of a directory."""

    url: str
    #: Files of the options.
    key: Path
    known_hosts: Path

    @property
    def options(self) -> dict[str, str]:
        """The options of a login."""
        return {"ssh.key": str(self.key), "ssh.known.hosts": str(self.known_hosts)}


@contextlib.contextmanager
def server(files: Path, own: Path) -> Iterator[SftpServer]:
    """A server of the directory ``files``; ``own`` is for its keys."""
    pytest.importorskip("paramiko")
    if not Path(_SSHD).exists() or shutil.which("ssh-keygen") is None:
        pytest.skip("openssh-server is not installed")
    for name in ("host", "login"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(own / name)], check=True
        )
    port = nats.free_port()
    kind, key, *_ = (own / "host.pub").read_text().split()
    (own / "known_hosts").write_text(f"[127.0.0.1]:{port} {kind} {key}\n")
    (own / "config").write_text(
        f"HostKey {own}/host\nAuthorizedKeysFile {own}/login.pub\nStrictModes no\nUsePAM no\n"
        f"PidFile none\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n"
        f"Subsystem sftp internal-sftp\nForceCommand internal-sftp -d {files}\n"
        "MaxStartups 100\n"
    )
    if os.geteuid() == 0:
        # It refuses to start without it.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    process = subprocess.Popen(
        [_SSHD, "-D", "-e", "-f", str(own / "config"), "-o", f"ListenAddress=127.0.0.1:{port}"],
        stderr=subprocess.DEVNULL,
        preexec_fn=die_with_parent(),
    )
    try:
        _wait(process, port)
        url = f"sftp://{getpass.getuser()}@127.0.0.1:{port}"
        yield SftpServer(url, own / "login", own / "known_hosts")
    finally:
        process.terminate()
        process.wait(10)


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    end_s = time.monotonic() + _WAIT_S
    while time.monotonic() < end_s:
        assert process.poll() is None, "sshd has ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    raise AssertionError("sshd does not answer")
