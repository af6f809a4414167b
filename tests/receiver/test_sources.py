"""Sources by position, above all files: both ends of a file, and who may name one."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from mesh.connect.access import access_of, check_listen, path_of
from mesh.connect.contract import Context, NodeAccess
from mesh.errors import MeshError
from mesh.receiver.sources import token_of_name
from mesh.receiver.types.file_source import FileSource
from mesh.settings import Settings
from tests.support.connectors import staged
from tests.support.source_apps import APP, file_app

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats


def test_addresses_and_files_are_closed_unless_a_setting_opens_them(tmp_path: Path) -> None:
    access = access_of(Settings())
    check_listen(access, "127.0.0.1", 8280)
    check_listen(access, "localhost", 8280)
    for host, port in (("0.0.0.0", 8280), ("127.0.0.1", 80), ("localhost", 80)):
        with pytest.raises(MeshError, match="not open"):
            check_listen(access, host, port)
    with pytest.raises(MeshError, match="not open"):
        path_of(access, str(tmp_path / "x"))
    inside = tmp_path / "in"
    inside.mkdir()
    opened = NodeAccess(file_roots=(str(inside),))
    assert path_of(opened, f"file://{inside}/x") == f"{inside}/x"
    (inside / "link").symlink_to("/etc")
    for path in (f"{inside}/../x", f"{inside}/link/passwd", f"{inside}x"):
        with pytest.raises(MeshError, match="not open"):
            path_of(opened, path)


def test_names_of_payloads_fit_into_a_header() -> None:
    assert token_of_name("17-é/x y") == "17-é/x y"
    odd = ["x" * 70_000, "x" * 70_001, "a\r\nNats-Rollup: all", "caf\udce9", "caf\udcea", "a\x00"]
    tokens = {token_of_name(name) for name in odd}
    assert len(tokens) == len(odd)
    assert all(len(token.encode()) == 64 for token in tokens)


async def test_lines_of_a_file_are_read_once_and_followed(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    path = tmp_path / "in.csv"
    path.write_text("k,n\na,1\nb,x\nc,3\nd")

    text = file_app(tmp_path, ", header.present='true'")
    async with staged(nats_server, text, NodeAccess(file_roots=(str(tmp_path),))) as stage:

        async def count(number: int) -> bool:
            return len(await stage.events("S")) == number

        first = stage.start("receiver-S")
        await stage.until("2 events", lambda: count(2))
        (entry,) = await stage.until("the entry", stage.errors)
        assert entry["data"] == "b,x"
        assert entry["connector"] == "source file"
        with path.open("a") as file:
            file.write(",4\n")
        await stage.until("its end", lambda: count(3))
        await first.stop()
        with path.open("a") as file:
            file.write("e,5\n")
        stage.start("receiver-S", epoch=2)
        await stage.until("what was added", lambda: count(4))
        # Another file of the name.
        os.replace(_written(tmp_path / "new.csv", "k,n\nf,6\n"), path)
        await stage.until("the next file", lambda: count(5))
        assert [e["k"] for e in await stage.events("S")] == ["a", "c", "d", "e", "f"]


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("header", [False, True])
def test_a_line_has_one_name_however_a_growing_file_is_cut(tmp_path: Path, header: bool) -> None:
    """The host names the record of a line that can't be read by it, and so records it once."""
    text = "a\r\n\nbb\nccc\n\ndddd\n"
    path = tmp_path / "in"
    options = {"file.uri": str(path), "tailing": True, "header.present": header}
    context = Context("a", "S", options, NodeAccess(file_roots=(str(tmp_path),)))

    async def read(ends: list[int]) -> dict[str, bytes]:
        source, found = FileSource(), dict[str, bytes]()
        await source.open(context, None)
        for end in ends:
            path.write_bytes(text[:end].encode())
            batch = await source.read()
            assert batch is not None
            found.update(zip(batch.names or (), batch.payloads, strict=True))
        path.unlink()
        return found

    whole = asyncio.run(read([len(text)]))
    assert list(whole.values()) == [b"a", b"bb", b"ccc", b"dddd"][header:]
    again = asyncio.run(read([3, 8, 12, len(text)]))
    assert {n.partition("-")[2]: line for n, line in again.items()} == {
        n.partition("-")[2]: line for n, line in whole.items()
    }


async def test_files_of_a_directory_are_read_by_name(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    for name in ("b.csv", "a.csv", "c.txt"):
        (tmp_path / name).write_text(f"{name},1\n{name},2\n")
    source = (
        f"@source(type='file', dir.uri='{tmp_path}', file.name.pattern='.*csv', "
        "file.polling.interval='10', @map(type='csv'))"
    )

    text = APP.format(source, "")
    async with staged(nats_server, text, NodeAccess(file_roots=(str(tmp_path),))) as stage:
        stage.start("receiver-S")

        async def count() -> bool:
            return len(await stage.events("S")) == 4

        await stage.until("4 events", count)
        assert [e["k"] for e in await stage.events("S")] == ["a.csv"] * 2 + ["b.csv"] * 2


async def test_a_file_outside_of_the_roots_is_refused_with_a_reason(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with staged(nats_server, file_app(tmp_path)) as stage:
        for group in ("receiver-S", "sink-T"):
            stage.start(group)

        def refused() -> bool:
            said = [r.error or "" for r in stage.reports]
            said += [d.error or "" for r in stage.reports for d in r.connectors]
            return sum("is not open to connectors" in text for text in set(said)) >= 2

        await stage.until("the reasons", refused)


@pytest.mark.slow
async def test_a_file_is_cut_back_to_its_position(nats_server: NatsServer, tmp_path: Path) -> None:
    path = tmp_path / "out.csv"

    access = NodeAccess(file_roots=(str(tmp_path),))
    async with staged(nats_server, file_app(tmp_path), access) as stage:
        await stage.publish("T", {"k": "a", "n": 1}, {"k": "b", "n": 2})
        first = stage.start("sink-T")
        await stage.until("2 lines", lambda: path.exists() and path.read_text() == "a,1\nb,2\n")
        await stage.until("the position", lambda: stage.reports[-1].events_out == 2)
        await first.stop()
        # What a killed process has written after its last position.
        with path.open("a") as file:
            file.write("half of a li")
        await stage.publish("T", {"k": "c", "n": 3})
        stage.start("sink-T", epoch=2)
        await stage.until("3 lines", lambda: path.read_text() == "a,1\nb,2\nc,3\n")


async def test_a_nats_sink_publishes_with_keys(nats_server: NatsServer) -> None:
    sink = (
        f"@sink(type='nats', server.urls='{nats_server.url}', destination='out.{{{{k}}}}', "
        "@map(type='json', envelope='none'))"
    )
    async with staged(nats_server, APP.format("", sink)) as stage:
        await stage.publish("T", {"k": "a", "n": 1}, {"k": "b c", "n": 2}, {"k": "d", "n": 3})
        stage.start("sink-T")
        await stage.until(
            "no stream",
            lambda: any(
                "no stream" in (d.error or "") for r in stage.reports for d in r.connectors
            ),
        )
        await stage.js.add_stream(name="OUT", subjects=["out.>"])
        (entry,) = await stage.until("the refused one", stage.errors)
        assert "is not a token of a subject" in entry["reason"]
        await stage.until("the first", lambda: stage.messages("OUT", "out.a"))
        assert await stage.messages("OUT", "out.a") == [b'{"k":"a","n":1}']
        await stage.until("the last", lambda: stage.messages("OUT", "out.d"))
