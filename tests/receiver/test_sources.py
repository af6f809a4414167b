"""Sources: HTTP answers after the ack, files by position, both ends of a file."""

from __future__ import annotations

import asyncio
import gzip
import os
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mesh.connect.access import access_of
from mesh.connect.contract import Context, NodeAccess
from mesh.connect.references import open_references, references_of
from mesh.errors import MeshError
from mesh.jetstream import connector_replay
from mesh.model.cluster import InstanceState
from mesh.receiver.access import check_listen, path_of
from mesh.receiver.types.file_source import FileSource
from mesh.settings import Settings
from tests.support.connectors import staged
from tests.support.pages import every_passage

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

APP = """@App:name('Doors')
{}
define stream S (k string, n int);
{}
define stream T (k string, n int);
from S select k, n insert into T;
"""
HTTP = "@source(type='http', receiver.url='http://127.0.0.1:0/in'{}, @map(type='json'))"
GOOD = b'{"event":{"k":"a","n":1}}'


async def posting(stage: Any, **changes: Any) -> tuple[Any, str]:
    instance = stage.start("receiver-S", **changes)
    status = await stage.until_running(instance)
    return instance, status.connectors[0].endpoint


async def test_a_request_is_answered_once_its_events_are_stored(nats_server: NatsServer) -> None:
    text = APP.format(HTTP.format(", max.body='1000'"), "")
    async with staged(nats_server, text) as stage, httpx.AsyncClient() as client:
        _, url = await posting(stage)
        answers = await asyncio.gather(*(client.post(url, content=GOOD) for _ in range(20)))
        assert [a.status_code for a in answers] == [200] * 20
        assert answers[0].json() == {"accepted": 1}
        assert len(await stage.events("S")) == 20
        several = await client.post(url, content=b"[%b,%b]" % (GOOD, GOOD))
        assert several.json() == {"accepted": 2}
        wrong = await client.post(url, content=b'[%b,{"event":{"k":"a","n":"x"}}]' % GOOD)
        assert wrong.status_code == 400
        assert wrong.json()["index"] == 1
        assert '"n"' in wrong.json()["reason"]
        assert (await client.post(url, content=b"x" * 1001)).status_code == 413
        assert (await client.get(url)).status_code == 405
        assert (await client.post(f"{url}x", content=GOOD)).status_code == 404
        for kind, body, status in (
            ("gzip", gzip.compress(GOOD), 200),
            ("gzip", gzip.compress(b" " * 1001), 413),
            ("gzip", gzip.compress(GOOD)[:-5], 400),
            ("gzip", GOOD, 400),
            ("x-gzip", gzip.compress(GOOD), 200),
            ("gzip", gzip.compress(GOOD + b"\n") + gzip.compress(GOOD), 200),
            ("gzip", gzip.compress(GOOD) + b"more", 400),
            ("br", GOOD, 415),
        ):
            packed = await client.post(url, content=body, headers={"Content-Encoding": kind})
            assert packed.status_code == status
        assert len(await stage.events("S")) == 26


async def test_lines_of_one_header_are_one_property(nats_server: NatsServer) -> None:
    mapping = "@map(type='json', @attributes(k='trp:x-k', n='n'))"
    text = APP.format(HTTP.format("").replace("@map(type='json')", mapping), "")
    async with staged(nats_server, text) as stage, httpx.AsyncClient() as client:
        _, url = await posting(stage)
        lines = [("X-K", "a"), ("x-k", "b")]
        answer = await client.post(url, content=b'{"n":1}', headers=lines)
        assert answer.status_code == 200
        assert await stage.events("S") == [{"k": "a, b", "n": 1}]


async def test_a_key_is_stored_once(nats_server: NatsServer) -> None:
    text = APP.format(HTTP.format(""), "")
    async with staged(nats_server, text) as stage, httpx.AsyncClient() as client:
        _, url = await posting(stage)
        for key in ("1", "2", "1"):
            answer = await client.post(url, content=GOOD, headers={"Idempotency-Key": key})
            assert answer.status_code == 200
        assert len(await stage.events("S")) == 2


async def test_logins_and_back_pressure(nats_server: NatsServer) -> None:
    options = ", ref='vault', basic.auth.enabled='true', max.concurrent='1'"
    text = APP.format(HTTP.format(options), "")
    async with staged(nats_server, text) as stage, httpx.AsyncClient() as client:
        _, url = await posting(stage)
        assert (await client.post(url, content=GOOD)).status_code == 401
        assert (await client.post(url, content=GOOD, auth=("u", "x"))).status_code == 401
        login = ("u", "hunter2")
        answers = await asyncio.gather(
            *(client.post(url, content=GOOD, auth=login) for _ in range(8))
        )
        statuses = {a.status_code for a in answers}
        assert 200 in statuses
        assert statuses <= {200, 429}
        assert all("retry-after" in a.headers for a in answers if a.status_code == 429)
        nats_server.process.kill()
        nats_server.process.wait()
        lost = await client.post(url, content=GOOD, auth=login, timeout=20)
        assert lost.status_code == 503


async def test_pages_of_an_allowed_origin_post(nats_server: NatsServer) -> None:
    text = APP.format(HTTP.format(", allow.origin='http://page'"), "")

    async with staged(nats_server, text) as stage, httpx.AsyncClient() as client:
        _, url = await posting(stage)
        asks = {"Access-Control-Request-Method": "POST"}
        for origin, is_allowed in (("http://page", True), ("http://other", False)):
            own = {"Origin": origin}
            answers = [
                await client.options(url, headers={**own, **asks}),
                await client.post(url, content=b"no JSON", headers=own),
            ]
            assert [a.status_code for a in answers] == [204, 400]
            found = [a.headers.get("access-control-allow-origin") for a in answers]
            assert found == [origin if is_allowed else None] * 2
        assert "idempotency-key" in answers[0].headers["access-control-allow-headers"]


async def test_a_stopped_source_refuses_and_its_address_is_free(nats_server: NatsServer) -> None:
    text = APP.format(HTTP.format(""), "")
    async with staged(nats_server, text) as stage, httpx.AsyncClient() as client:
        instance, url = await posting(stage)
        await instance.stop()
        with pytest.raises(httpx.ConnectError):
            await client.post(url, content=GOOD)
        assert stage.reports[-1].state is InstanceState.STOPPED


def test_addresses_and_files_are_closed_unless_a_setting_opens_them(tmp_path: Path) -> None:
    access = access_of(Settings())
    check_listen(access, "127.0.0.1", 8280)
    for host, port in (("0.0.0.0", 8280), ("127.0.0.1", 80)):
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


def test_references_are_read_from_the_nodes_file(tmp_path: Path) -> None:
    path = tmp_path / "refs.yaml"
    path.write_text("vault:\n  basic.auth.password: 0123\n  ssl.verification.disabled: true\n")
    assert references_of(str(path)) == {
        "vault": {"basic.auth.password": "83", "ssl.verification.disabled": "true"}
    }
    (shown,) = (one for one in every_passage() if one.first == "billing:")
    path.write_text(shown.text)
    found = open_references(references_of(str(path)), "ShopNorth")
    assert found == {"billing": {"basic.auth.username": "mesh", "basic.auth.password": "0815"}}, (
        "as docs/connectors.md shows it"
    )
    path.write_text("vault: 'hunter2")
    with pytest.raises(MeshError) as raised:
        references_of(str(path))
    assert "hunter2" not in raised.value.render()


def file_app(directory: Path, source: str = "", sink: str = "") -> str:
    one = f"@source(type='file', file.uri='{directory}/in.csv', "
    one += f"file.polling.interval='10'{source}, @map(type='csv'))"
    other = f"@sink(type='file', file.uri='{directory}/out.csv'{sink}, @map(type='csv'))"
    return APP.format(one, other)


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


async def test_a_line_that_was_not_read_is_replayed_to_the_mapper(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text("a,x\n")

    access = NodeAccess(file_roots=(str(tmp_path),))
    async with staged(nats_server, file_app(tmp_path), access) as stage:
        stage.start("receiver-S")
        (entry,) = await stage.until("the entry", stage.errors)
        entry["id"] = 1
        with pytest.raises(MeshError, match="refused again"):
            await connector_replay.send(stage.client, "Doors", entry, None)
        for _ in range(2):
            await connector_replay.send(stage.client, "Doors", entry, b"a,5\nb,6")
        assert [e["n"] for e in await stage.events("S")] == [5, 6]


async def test_a_replayed_payload_has_the_properties_of_the_first(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text("x\n")
    source = (
        f"@source(type='file', file.uri='{tmp_path}/in.csv', file.polling.interval='10', "
        "@map(type='csv', @attributes(k='trp:File.Name', n='0')))"
    )

    text = APP.format(source, "")
    async with staged(nats_server, text, NodeAccess(file_roots=(str(tmp_path),))) as stage:
        await stage.until_running(stage.start("receiver-S"))
        (entry,) = await stage.until("the entry", stage.errors)
        assert entry["options"] == {"file.name": "in.csv"}
        await connector_replay.send(stage.client, "Doors", {**entry, "id": 1}, b"7")
        assert await stage.events("S") == [{"k": "in.csv", "n": 7}]
