"""Connections with credentials and TLS, of the agents and of what Spark's processes use."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from mesh.jetstream import connection
from mesh.jetstream.accounts import new_key
from mesh.jetstream.blob_store import JETSTREAM, open_blob_store
from mesh.jetstream.snapshots import ensure_buckets
from mesh.processes.signals import end
from mesh.settings import NatsSettings
from tests.support import jwts
from tests.support.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

    Serve = Callable[[str], NatsServer]

pytestmark = pytest.mark.nats


def use(settings: NatsSettings, path: Path) -> None:
    """Store a piece as an agent does, and fetch it as Spark's processes do."""

    async def scene() -> None:
        client = await connection.connect(settings, "test")
        js = client.jetstream()
        await ensure_buckets(js, 1)
        pieces = open_blob_store(js, JETSTREAM, connection.connector_options(settings))
        await pieces.put("a/b", b"content")
        await pieces.fetch({"a/b": path})
        await connection.close(client)

    asyncio.run(scene())
    assert path.read_bytes() == b"content"


def test_a_credentials_file_holds_for_all(serve: Serve, tmp_path: Path) -> None:
    operator, user = jwts.Operator(), jwts.key("user")
    url = serve(operator.configuration()).url
    path = jwts.creds(tmp_path / "ann.creds", operator.user_jwt(user), user.seed)
    use(NatsSettings(url=url, creds=str(path)), tmp_path / "piece")


@pytest.mark.parametrize("scheme", ["nats", "tls"])
def test_an_authority_of_our_own_holds_for_all(serve: Serve, tmp_path: Path, scheme: str) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server", hosts=("127.0.0.1",))
    url = serve(f'tls {{ cert_file: "{pair.cert}", key_file: "{pair.key}" }}').url
    settings = NatsSettings(url=url.replace("nats", scheme), tls_ca=str(authority.cert))
    use(settings, tmp_path / "piece")


@pytest.mark.parametrize("first", [False, True])
def test_the_end_of_a_server_with_tls_is_no_warning_of_asyncio(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture, first: bool
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server", hosts=("127.0.0.1",))
    server = serve(
        f'tls {{ cert_file: "{pair.cert}", key_file: "{pair.key}",'
        f" handshake_first: {'500ms' if first else 'false'} }}"
    )
    settings = NatsSettings(
        url=server.url.replace("nats", "tls"), tls_ca=str(authority.cert), tls_first=first
    )

    async def scene() -> None:
        client = await connection.connect(settings, "test")
        lost = asyncio.Event()
        connection.listen(client, lambda restored: lost.set())
        await asyncio.to_thread(server.stop)
        async with asyncio.timeout(20):
            await lost.wait()
        await connection.close(client)

    asyncio.run(scene())
    assert [line for line in caplog.messages if "eof_received" in line] == []


def test_an_nkey_with_inboxes_of_its_own_holds_for_all(serve: Serve, tmp_path: Path) -> None:
    seed, public = new_key()
    path = tmp_path / "ann.nk"
    # As `nk -gen user` writes it, with a line end.
    path.write_text(f"{seed}\n")
    may = '{ publish: ">", subscribe: ["_INBOX.ann.>"] }'
    url = serve(f"authorization {{ users: [ {{ nkey: {public}, permissions: {may} }} ] }}").url
    settings = NatsSettings(url=url, nkey_seed_file=str(path), inbox_prefix="_INBOX.ann")
    use(settings, tmp_path / "piece")


@pytest.mark.parametrize("first", [False, True])
def test_a_client_certificate_holds_for_all(serve: Serve, tmp_path: Path, first: bool) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server", hosts=("127.0.0.1",))
    own = authority.issue("ann")
    url = serve(
        f'tls {{ cert_file: "{pair.cert}", key_file: "{pair.key}", ca_file: "{authority.cert}",'
        # The server waits so long for a handshake, and then begins by itself ("auto": 50 ms).
        f" verify: true, handshake_first: {'500ms' if first else 'false'} }}"
    ).url
    settings = NatsSettings(
        url=url,
        tls_ca=str(authority.cert),
        tls_cert=str(own.cert),
        tls_key=str(own.key),
        tls_first=first,
    )
    use(settings, tmp_path / "piece")
    with pytest.raises(MeshError, match="N110"):
        asyncio.run(_connected(replace(settings, tls_cert="", tls_key="")))


def test_the_api_of_a_domain_is_asked(serve: Serve, tmp_path: Path) -> None:
    user = 'publish: { deny: "$JS.API.>" }'
    url = serve(
        "jetstream { domain: hub }\n"
        f"authorization {{ user: ann, password: pw, permissions: {{ {user} }} }}"
    ).url
    settings = NatsSettings(url=url, user="ann", password="pw", js_domain="hub")
    use(settings, tmp_path / "piece")


def test_a_file_of_the_login_that_is_missing_is_told_of() -> None:
    for settings in (
        NatsSettings(nkey_seed_file="/none/x.nk"),
        NatsSettings(tls_ca="/none/ca.pem"),
    ):
        with pytest.raises(MeshError, match="N110") as error:
            asyncio.run(_connected(settings))
        assert "No such file" in str(error.value.detail)


def test_a_server_that_only_offers_tls_is_used_with_it(serve: Serve, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server", hosts=("127.0.0.1",))
    url = serve(
        f'tls {{ cert_file: "{pair.cert}", key_file: "{pair.key}" }}\nallow_non_tls: true'
    ).url

    async def scene() -> object:
        settings = NatsSettings(url=url, tls_ca=str(authority.cert))
        client = await connection.connect(settings, "test")
        transport = client._transport._io_writer.transport  # type: ignore[union-attr]  # of TCP
        found = transport.get_extra_info("ssl_object")
        await connection.close(client)
        return found

    assert isinstance(asyncio.run(scene()), ssl.SSLObject)


def test_a_server_without_tls_is_refused(serve: Serve, tmp_path: Path) -> None:
    url = serve('authorization { user: ann, password: "pw" }').url
    authority = Authority(tmp_path)
    known = NatsSettings(url=url, user="ann", password="pw")
    asyncio.run(_connected(known))
    for settings in (
        replace(known, url=url.replace("nats://", "tls://")),
        replace(known, tls_ca=str(authority.cert)),
    ):
        with pytest.raises(MeshError, match="N110") as error:
            asyncio.run(_connected(settings))
        assert "offers no TLS" in str(error.value.detail)


async def test_nothing_is_sent_to_a_server_that_hides_its_tls() -> None:
    received = []

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.14.0","max_payload":1000000}\r\n')
        received.append(await reader.read(1000))
        writer.close()

    between = await asyncio.start_server(pretend, "127.0.0.1", 0)
    port = between.sockets[0].getsockname()[1]
    settings = NatsSettings(url=f"tls://127.0.0.1:{port}", user="ann", password="hunter2")
    with pytest.raises(MeshError, match="N110"):
        await _connected(settings)
    between.close()
    await between.wait_closed()
    assert received
    assert set(received) == {b""}


async def test_a_login_that_is_cancelled_leaves_no_socket_open() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.14.0","max_payload":1000000}\r\n')
        while await reader.read(1000):
            began.set()
        ended.set()
        writer.close()

    between = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = between.sockets[0].getsockname()[1]
    settings = NatsSettings(url=f"nats://127.0.0.1:{port}", connect_timeout_s=30)
    task = asyncio.create_task(_connected(settings))
    await began.wait()
    await end([task])
    async with asyncio.timeout(30):
        await ended.wait()
    between.close()
    await between.wait_closed()


def test_a_message_does_not_hold_the_password_of_a_url() -> None:
    settings = NatsSettings(url="nats://ann:hunter2@127.0.0.1:1,nats://t0ken@127.0.0.1:1")
    with pytest.raises(MeshError, match="N110") as error:
        asyncio.run(_connected(settings))
    assert 'NATS at "nats://127.0.0.1:1,nats://127.0.0.1:1"' in error.value.message
    assert "hunter2" not in error.value.render()
    assert "t0ken" not in error.value.render()


async def _connected(settings: NatsSettings) -> None:
    await connection.close(await connection.connect(settings, "test"))
