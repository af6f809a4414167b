"""Sink ``file`` on a real FTP server, and encrypted calls both ways."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

from mesh.connect import registry
from mesh.connect.contract import Context, NodeAccess, Record, UnavailableError
from mesh.connect.spec import Role
from mesh.errors import MeshError
from mesh.plan.build import plan
from mesh.receiver.types.file_ftp import FtpFiles
from mesh.receiver.types.file_sink import FileSink, refusal
from mesh.testing.connectors import ConnectorScenario, Stage, conform
from tests.support.certificates import Authority
from tests.support.ftp import server

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

APP = """@App:name('{app}')
define stream S (k string, n int);
@sink(type='file', file.uri='URL/{app}/OPTIONS, @map(type='csv'))
define stream T (k string, n int);
from S select k, n insert into T;
"""


@pytest.mark.slow
@pytest.mark.nats
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("in/out.csv'", {"in/out.csv": "a,0\nb,1\na,2\nb,3\na,4\n"}),
        ("{{k}}.csv', append='false'", {"a.csv": "a,4\n", "b.csv": "b,3\n"}),
    ],
)
def test_files_are_written_exactly_once(
    nats_server: NatsServer, tmp_path: Path, ftp: tuple[str, Path], options: str,
    expected: dict[str, str],
) -> None:  # fmt: skip
    url, directory = ftp[0] + f"/{len(expected)}", ftp[1] / f"{len(expected)}"

    async def send(stage: Stage) -> None:
        rows = [{"k": "ab"[n % 2], "n": n} for n in range(5)]
        await stage.publish("T", *rows[:2])
        await stage.publish("T", *rows[2:])

    async def found(stage: Stage) -> dict[str, str]:
        own = directory / stage.spec.name
        return {
            str(path.relative_to(own)): path.read_text()
            for path in own.rglob("*")
            if path.is_file() and not path.name.startswith(".")
        }

    text = APP.replace("URL", url).replace("OPTIONS", options)
    use = ConnectorScenario(text, "sink-T", send, found, lambda seen: seen == expected)
    for number in range(100):
        (directory / f"Run{number}").mkdir(parents=True)
    moments = asyncio.run(conform(nats_server.url, use, tmp_path))
    assert {"before write", "after write", "after store a position"} <= set(moments)


def opened(uri: str, state: Mapping[str, Any] | None = None, **given: str) -> FileSink:
    """An opened sink; ``_`` in names is a dot."""
    spec = registry.find(Role.SINK, "file")
    assert spec is not None
    values = spec.values({n.replace("_", "."): v for n, v in given.items()} | {"file.uri": uri})
    sink = FileSink()
    asyncio.run(sink.open(Context("a", "T", values, header=b"h\n"), state))
    return sink


def write(sink: FileSink, *payloads: str, uri: str = "") -> list[str | None]:
    options = {"file.uri": uri} if uri else {}
    return list(
        asyncio.run(sink.write([Record("k", payload.encode(), options) for payload in payloads]))
    )


def test_bytes_that_an_earlier_attempt_wrote_are_left_out(ftp: tuple[str, Path]) -> None:
    url, directory = ftp
    path = directory / "cut" / "out"
    sink = opened(f"{url}/cut/out")
    write(sink, "1", "2")
    assert sink.state == {"length": 6}
    write(sink, "3", "4")
    assert path.read_text() == "h\n1\n2\n3\n4\n"
    # The host ended before it stored the position of the second write; part of it is there.
    path.write_text("h\n1\n2\n3\n")
    again = opened(f"{url}/cut/out", {"length": 6})
    write(again, "3")
    write(again, "4", "5")
    assert path.read_text() == "h\n1\n2\n3\n4\n5\n"
    assert again.state == {"length": 12}
    with pytest.raises(UnavailableError, match="it has 12 bytes, and 14 were written"):
        opened(f"{url}/cut/out", {"length": 14})
    # A connection that is lost within a write: how much of it is there is seen by the next.
    assert again._files is not None
    files = again._files._files  # type: ignore[union-attr]  # of a server
    assert isinstance(files, FtpFiles)
    assert files.server is not None
    assert files.server.sock is not None
    files.server.sock.shutdown(socket.SHUT_RDWR)
    path.write_text("h\n1\n2\n3\n4\n5\n6")
    with pytest.raises(UnavailableError):
        write(again, "6")
    write(again, "6")
    assert path.read_text() == "h\n1\n2\n3\n4\n5\n6\n"
    emptied = opened(f"{url}/cut/out", append="false", add_line_separator="false")
    write(emptied, "x")
    assert path.read_text() == "h\nx"
    for one in (sink, again, emptied):
        asyncio.run(one.close())


def test_paths_that_an_event_makes(ftp: tuple[str, Path]) -> None:
    url, directory = ftp
    uri = f"{url}/by/{{{{k}}}}"
    sink = opened(uri, append="false")

    def path(name: str) -> list[str | None]:
        return write(sink, "1", uri=uri.replace("{{k}}", name))

    assert path("a b#?%20") == [None]
    assert (directory / "by" / "a b#?%20").read_text() == "h\n1\n"
    for name, reason in (("../x", "leads out"), ("a\r\nDELE b", "no path"), ("", "no path")):
        (found,) = path(name)
        assert found is not None
        assert reason in found
    assert refusal("/etc/x") == "/etc/x leads out of the directory"
    asyncio.run(sink.close())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("out', roll.size='1 MB'", "are for files of the worker"),
        ("{{k}}'", "needs append='false'"),
    ],
)
def test_what_a_server_can_not_do_is_refused_with_the_app(options: str, reason: str) -> None:
    text = APP.replace("{app}", "A").replace("OPTIONS", options)
    with pytest.raises(MeshError, match=reason):
        plan(text.replace("URL", "ftp://h"))
    with pytest.raises(MeshError, match="smb is not supported"):
        plan(text.replace("URL", "smb://h"))


def test_one_server_has_all_files() -> None:
    text = APP.replace("{app}", "A").replace("OPTIONS", "x', append='false'")
    with pytest.raises(MeshError, match="is the same for all events"):
        plan(text.replace("URL/A/", "ftp://{{k}}/"))


def test_encrypted_calls_need_an_authority_that_is_trusted(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    authority = Authority(tmp_path)
    pair = authority.issue("server", hosts=("127.0.0.1",))
    with server(tmp_path / "files", pair) as url:
        sink = opened(f"{url}/out", tls_ca=str(authority.cert))
        write(sink, "1")
        asyncio.run(
            sink.check(Context("a", "T", {"file.uri": f"{url}/out", "tls.ca": str(authority.cert)}))
        )
        asyncio.run(sink.close())
        assert (tmp_path / "files" / "out").read_text() == "h\n1\n"
        files = FtpFiles(url, {"tls.ca": str(authority.cert)}, NodeAccess())
        (path,) = files.paths(".")
        with files.opened(path) as (found, read):
            assert found.size == 4
            assert read(2, 2) == b"1\n"
            assert read(1, 0) == b"h"
        files.close()
        strange = Authority(tmp_path, "another")
        with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            opened(f"{url}/out", tls_ca=str(strange.cert))
        with pytest.raises(UnavailableError, match=r"550|SSL"):
            opened(url.replace("ftps:", "ftp:") + "/out")
