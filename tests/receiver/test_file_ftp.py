"""Source ``file`` with files of a real FTP server."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mesh.connect.contract import NodeAccess
from mesh.errors import MeshError
from mesh.plan.build import plan
from mesh.receiver.types.file_ftp import FtpFiles
from mesh.testing.connectors import ConnectorScenario, Stage, conform
from tests.support.connectors import staged

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

APP = """@App:name('{app}')
@source(type='file', dir.uri='URL/{app}', file.polling.interval='20', OPTIONS,
        @map(type='csv', @attributes(n='0', path='trp:file.path')))
define stream S (n int, path string);
define stream T (n int);
from S select n insert into T;
"""
MOVED = "move.after.process='URL/done/{app}'"


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.nats
@pytest.mark.parametrize(
    ("options", "left"),
    [
        ("tailing='false', action.after.process='delete'", {"a.csv": False}),
        (
            "mode='text.full', action.after.process='move', move.if.exist.mode='keep', " + MOVED,
            {"a.csv": False, "../done/{app}/a.csv": True},
        ),
        ("tailing='true'", {"a.csv": True}),
    ],
)
async def test_files_are_read_exactly_once(
    nats_server: NatsServer,
    tmp_path: Path,
    ftp: tuple[str, Path],
    options: str,
    left: dict[str, bool],
) -> None:
    url, directory = ftp

    async def write(stage: Stage) -> None:
        own = directory / stage.spec.name
        own.mkdir(exist_ok=True)
        for name, text in (("a.csv", "0\n1\n"), ("b.csv", "2\n3\n4\n")):
            (own / f".{name}").write_text(text)
            (own / f".{name}").rename(own / name)

    async def found(stage: Stage) -> list[Any]:
        app = stage.spec.name
        rows = [(e["n"], e["path"].removeprefix(app)) for e in await stage.events("S")]
        files = {n: (directory / app / n.replace("{app}", app)).exists() for n in left}
        return [*sorted(rows), files]

    text = APP.replace("OPTIONS", options).replace("URL", url)
    (directory / "Run0").mkdir(exist_ok=True)
    use = ConnectorScenario(
        text, "receiver-S", write, found, lambda f: len(f) == 6 and f[-1] == left
    )
    moments = await conform(nats_server.url, use, tmp_path)
    assert {"before read", "after publish", "before committed"} <= set(moments)


def write_named(directory: bytes) -> None:
    """Write files with names in several encodings."""
    os.mkdir(directory)
    for name, text in ((b"a", "1\n"), ("naïve file".encode(), "2\n"), (b"caf\xe9", "4\n")):
        with open(directory + b"/" + name + b".csv", "w", encoding="utf-8") as file:
            file.write(text)


@pytest.mark.slow
async def test_a_name_that_is_no_utf8_is_passed_over(
    nats_server: NatsServer, ftp: tuple[str, Path]
) -> None:
    url, directory = ftp
    own = os.fsencode(directory / "Names")
    write_named(own)
    options = "tailing='false', action.after.process='delete'"
    text = APP.replace("OPTIONS", options).replace("URL", url).replace("{app}", "Names")
    async with staged(nats_server, text) as stage:
        stage.start("receiver-S")

        async def both() -> bool:
            return sorted(event["n"] for event in await stage.events("S")) == [1, 2]

        await stage.until("both", both)
        await stage.until(
            "the name",
            lambda: "no UTF-8" in str([d.error for r in stage.reports for d in r.connectors]),
        )
        await stage.until("they are deleted", lambda: os.listdir(own) == [b"caf\xe9.csv"])


def test_a_login_a_lost_connection_and_a_file_that_is_missing(ftp: tuple[str, Path]) -> None:
    url, directory = ftp
    (directory / "x").mkdir(exist_ok=True)
    (directory / "x" / "some file").write_bytes(bytes(range(256)) * 1000)
    files = FtpFiles(url, {}, NodeAccess())
    (path,) = files.paths(files.path(f"{url}/x"))
    with files.opened(path) as (found, read):
        assert found.size == 256_000
        assert read(10, 250) == bytes([250, 251, 252, 253, 254, 255, 0, 1, 2, 3])
        assert len(read(1 << 20, 0)) == 256_000
    assert files.server is not None
    assert files.server.sock is not None
    files.server.sock.shutdown(socket.SHUT_RDWR)
    with pytest.raises(OSError, match=r".") as lost:
        files.find(path)
    assert lost.value.filename == path
    assert files.find(path) == found
    assert files.find("x/none") is None
    with pytest.raises(FileNotFoundError), files.opened("x/none"):
        pass
    files.close()
    wrong = FtpFiles(url.replace("s3cret", "wrong"), {}, NodeAccess())
    with pytest.raises(OSError, match="530"):
        wrong.paths("x")
    # With options instead of the URL.
    bare = url.replace("mesh:s3cret@", "")
    other = FtpFiles(bare, {"username": "mesh", "password": "s3cret"}, NodeAccess())
    assert other.paths("x") == [path]
    other.close()
    with pytest.raises(MeshError, match="may not connect"):
        FtpFiles(url, {}, NodeAccess(egress=("10.0.0.1:21",)))
    with pytest.raises(ValueError, match="not the server"):
        files.path("ftp://other/x")


def test_systems_are_not_mixed_and_others_are_named() -> None:
    for options, reason in (
        (
            "mode='text.full', action.after.process='move', move.after.process='/d'",
            "another system",
        ),
        ("move.after.process='smb://h/d'", "smb is not supported"),
    ):
        with pytest.raises(MeshError, match=reason):
            plan(APP.format(app="A").replace("URL", "ftp://h").replace("OPTIONS", options))
