"""Source and sink ``file`` with files of a real SFTP server."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mesh.connect import registry
from mesh.connect.contract import Context, NodeAccess, Record, UnavailableError
from mesh.connect.spec import Role
from mesh.errors import MeshError
from mesh.jetstream import server as nats
from mesh.processes.bounded_process import die_with_parent
from mesh.receiver.types.file_sftp import SftpFiles
from mesh.receiver.types.file_sink import FileSink
from mesh.testing.connectors import ConnectorScenario, Stage, conform

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.jetstream.server import NatsServer

APP = """@App:name('{app}')
@source(type='file', dir.uri='URL/{app}/in', file.polling.interval='20', tailing='false',
        action.after.process='move', move.after.process='URL/{app}/done', LOGIN, @map(type='csv'))
define stream S (n int);
@sink(type='file', file.uri='URL/{app}/out.csv', LOGIN, @map(type='csv'))
define stream T (n int);
from S select n insert into T;
"""

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
def sftp_server(files: Path, own: Path) -> Iterator[SftpServer]:
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


@pytest.fixture(scope="module")
def sftp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SftpServer, Path]]:
    files, own = tmp_path_factory.mktemp("files"), tmp_path_factory.mktemp("keys")
    with sftp_server(files, own) as running:
        yield running, files


def app(running: SftpServer) -> str:
    login = ", ".join(f"{name}='{value}'" for name, value in running.options.items())
    return APP.replace("URL", running.url).replace("LOGIN", login)


@pytest.mark.thorough
@pytest.mark.nats
def test_files_are_read_exactly_once(
    nats_server: NatsServer, tmp_path: Path, sftp: tuple[SftpServer, Path]
) -> None:
    running, files = sftp
    for number in range(100):
        (files / f"Run{number}" / "in").mkdir(parents=True)

    async def write(stage: Stage) -> None:
        own = files / stage.spec.name / "in"
        for name, text in (("a.csv", "0\n1\n"), ("b.csv", "2\n3\n")):
            (own / f".{name}").write_text(text)
            (own / f".{name}").rename(own / name)

    async def found(stage: Stage) -> Any:
        done = files / stage.spec.name / "done"
        names = sorted(path.name for path in done.iterdir()) if done.exists() else []
        return [sorted(event["n"] for event in await stage.events("S")), names]

    use = ConnectorScenario(
        app(running), "receiver-S", write, found,
        lambda seen: seen == [[0, 1, 2, 3], ["a.csv", "b.csv"]],
        access=lambda _: NodeAccess((str(running.key.parent),)),
    )  # fmt: skip
    assert asyncio.run(conform(nats_server.url, use, tmp_path))


@pytest.mark.slow
@pytest.mark.nats
def test_files_are_written_exactly_once(
    nats_server: NatsServer, tmp_path: Path, sftp: tuple[SftpServer, Path]
) -> None:
    running, files = sftp

    async def send(stage: Stage) -> None:
        await stage.publish("T", {"n": 0}, {"n": 1})
        await stage.publish("T", {"n": 2})

    async def found(stage: Stage) -> str:
        path = files / stage.spec.name / "out.csv"
        return path.read_text() if path.exists() else ""

    use = ConnectorScenario(
        app(running), "sink-T", send, found, lambda seen: len(seen) >= 6,
        access=lambda _: NodeAccess((str(running.key.parent),)),
    )  # fmt: skip
    moments = asyncio.run(conform(nats_server.url, use, tmp_path))
    assert {"before write", "after write", "after store a position"} <= set(moments)


def test_the_key_of_the_server_must_be_known(sftp: tuple[SftpServer, Path], tmp_path: Path) -> None:
    running, files = sftp
    spec = registry.find(Role.SINK, "file")
    assert spec is not None

    def opened(**more: str) -> FileSink:
        sink = FileSink()
        given = {"file.uri": f"{running.url}/x/y"} | running.options
        values = spec.values(given | {name.replace("_", "."): v for name, v in more.items()})
        asyncio.run(sink.open(Context("a", "T", values), None))
        return sink

    sink = opened()
    asyncio.run(sink.write([Record("k", b"1")]))
    asyncio.run(sink.close())
    assert (files / "x" / "y").read_text() == "1\n"
    (tmp_path / "none").touch()
    with pytest.raises(UnavailableError, match="not found in known_hosts"):
        opened(ssh_known_hosts=str(tmp_path / "none"))
    with pytest.raises(MeshError, match=r"needs ssh\.known\.hosts"):
        opened(ssh_known_hosts="")


def test_names_that_are_no_utf8_are_listed_and_not_read(sftp: tuple[SftpServer, Path]) -> None:
    running, directory = sftp
    own = os.fsencode(directory / "names")
    os.mkdir(own)
    for name in (b"a", "naïve file".encode(), b"caf\xe9"):
        with open(own + b"/" + name, "wb") as file:
            file.write(b"x")
    files = SftpFiles(running.url, running.options, NodeAccess())
    try:
        assert files.paths("names") == ["names/a", "names/caf\udce9", "names/naïve file"]
        assert files.checked("names/naïve file") == "names/naïve file"
        with pytest.raises(UnavailableError, match="no UTF-8"):
            files.checked("names/caf\udce9")
        # An answer about one path is no loss of the connection.
        with pytest.raises(PermissionError):
            files.replace("names/" + "x" * 300, b"y")
        assert files.find("names/a") is not None
    finally:
        files.close()


def test_files_that_are_missing_and_a_lost_connection(sftp: tuple[SftpServer, Path]) -> None:
    running, directory = sftp
    (directory / "z").mkdir(exist_ok=True)
    (directory / "z" / "some file").write_bytes(bytes(range(256)) * 1000)
    files = SftpFiles(running.url, running.options, NodeAccess())
    (path,) = files.paths(files.path(f"{running.url}/z"))
    with files.opened(path) as (found, read):
        assert found.size == 256_000
        assert read(4, 254) == bytes([254, 255, 0, 1])
        assert len(read(1 << 20, 0)) == 256_000
    files._client.get_transport().close()
    with pytest.raises(OSError, match=r".") as lost:
        files.find(path)
    assert lost.value.filename == path
    assert files.find(path) == found
    assert files.find("z") is None
    with pytest.raises(FileNotFoundError), files.opened("z/none"):
        pass
    files.replace("z/some file", b"1")
    assert (directory / "z" / "some file").read_text() == "1"
    files.close()
    with pytest.raises(MeshError, match="may not connect"):
        SftpFiles(running.url, running.options, NodeAccess(egress=("10.0.0.1:22",)))
    with pytest.raises(ValueError, match="not the server"):
        files.path("sftp://other/x")
