"""TLS of sources and sinks: PEM and PKCS#12, client certificates; addresses that are not open."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import websockets.asyncio.client
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

from mesh.connect.access import access_of, check_egress
from mesh.connect.contract import Context, NodeAccess, UnavailableError
from mesh.errors import MeshError
from mesh.jetstream.server import free_port
from mesh.receiver.http_server import HttpServers, Request, Response
from mesh.receiver.tls import server_context
from mesh.receiver.types.mqtt import MqttSink
from mesh.settings import ReceiverSettings, Settings
from mesh.testing.connectors import staged
from tests.support.certificates import Authority
from tests.support.mosquitto import broker

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.testing.connectors import Stage

APP = """@App:name('Tls')
@source(type='http', receiver.url='https://127.0.0.1:0/in', ref='door'{}, @map(type='json'))
define stream S (n int);
define stream T (n int);
from S select n insert into T;
"""
OUT = """@App:name('Out')
define stream S (n int);
@sink(type='http', publisher.url='{}', ref='door', @map(type='json')) define stream T (n int);
from S select n insert into T;
"""
HEAR = """@App:name('Hear')
@source(type='websocket', url='URL', ref='door', @map(type='json'))
define stream S (n int);
define stream T (n int);
from S select n insert into T;
"""
MQTT = """@App:name('{app}')
@source(type='mqtt', url='{url}', topic='t', ref='door', @map(type='json'))
define stream S (n int);
@sink(type='mqtt', url='{url}', topic='t', ref='door', @map(type='json', envelope='none'))
define stream T (n int);
from S select n insert into T;
"""
LISTEN = """@App:name('Listen')
define stream S (n int);
@sink(SINK, ref='door', @map(type='json', envelope='none')) define stream T (n int);
from S select n insert into T;
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A certificate of 127.0.0.1 that is its own authority, as PEM and as PKCS#12."""
    directory: Path = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    found = {}
    contents = {
        "cert": made.public_bytes(Encoding.PEM),
        "key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        "store": pkcs12.serialize_key_and_certificates(
            b"x", key, made, [made], BestAvailableEncryption(b"pw")
        ),
    }
    for kind, data in contents.items():
        (directory / kind).write_bytes(data)
        found[kind] = str(directory / kind)
    return found


@pytest.mark.slow
@pytest.mark.nats
def test_https_with_pem_and_with_a_store_in_both_directions(
    nats_server: NatsServer, files: dict[str, str]
) -> None:
    pem = {"tls.ca": files["cert"], "tls.cert": files["cert"], "tls.key": files["key"]}
    store = {"tls.ca": files["cert"], "tls.store": files["store"], "tls.store.password": "pw"}

    async def scene(app: str, server_side: dict[str, str], client_side: dict[str, str]) -> None:
        text = APP.replace("Tls", app).format(", ssl.verify.client='require'")
        url = nats_server.url
        async with staged(url, text, references={"door": server_side}) as stage:
            status = await stage.until_running(stage.start("receiver-S"))
            endpoint = status.connectors[0].endpoint
            assert endpoint.startswith("https://")
            sending = OUT.replace("'Out'", f"'{app}Out'").format(endpoint)
            unknown = ssl.create_default_context(cafile=files["cert"])
            async with httpx.AsyncClient(verify=unknown) as client:
                with pytest.raises(httpx.HTTPError):
                    await client.post(endpoint, content=b'{"n":1}')
            async with staged(url, sending, references={"door": client_side}) as out:
                await out.publish("T", {"n": 1}, {"n": 2})
                out.start("sink-T")

                async def arrived() -> Any:
                    return len(await stage.events("S")) == 2

                await stage.until("2 events", arrived)
                assert "pw" not in repr([r.connectors for r in stage.reports + out.reports])

    asyncio.run(scene("A", pem, store))
    asyncio.run(scene("B", store, pem))
    # The names of the original.
    trust = {"https.truststore.file": files["store"], "https.truststore.password": "pw"}
    keys = {"https.keystore.file": files["store"], "https.keystore.password": "pw"}
    asyncio.run(scene("C", pem, trust | keys))


async def test_an_address_asks_all_clients_for_the_same_certificates(tmp_path: Path) -> None:
    (tmp_path / "strange").mkdir()
    authority, strange = Authority(tmp_path), Authority(tmp_path / "strange")
    pair = authority.issue("server", hosts=("127.0.0.1",))
    own = {"tls.cert": str(pair.cert), "tls.key": str(pair.key)}
    shown = {**own, "tls.ca": str(authority.cert), "ssl.verify.client": "require"}
    servers = HttpServers()

    async def answer(request: Request) -> Response:
        return Response(200)

    for first, second in (
        (own, shown),
        ({**shown, "ssl.verify.client": "optional"}, shown),
        (shown, {**shown, "tls.ca": str(strange.cert)}),
    ):
        port = await servers.open("127.0.0.1", 0, "/a", answer, server_context(first))
        with pytest.raises(MeshError, match="asks clients for other certificates") as raised:
            await servers.open("127.0.0.1", port, "/b", answer, server_context(second))
        assert raised.value.code == "MESH-C133"
        await servers.open("127.0.0.1", port, "/b", answer, server_context(first))
        await servers.close("127.0.0.1", port, "/b")
        await servers.close("127.0.0.1", port, "/a")


@pytest.mark.nats
async def test_a_certificate_of_another_host_is_accepted_only_where_the_option_says_so(
    nats_server: NatsServer, files: dict[str, str]
) -> None:
    pem = {"tls.ca": files["cert"], "tls.cert": files["cert"], "tls.key": files["key"]}

    url = nats_server.url
    async with staged(url, APP.format(""), references={"door": pem}) as stage:
        status = await stage.until_running(stage.start("receiver-S"))
        # The certificate is for 127.0.0.1 alone.
        endpoint = status.connectors[0].endpoint.replace("127.0.0.1", "localhost")
        for name, more in (("No", ""), ("Yes", "hostname.verification.enabled='false', ")):
            sending = OUT.replace("'Out'", f"'{name}'").format(endpoint)
            sending = sending.replace("ref='door'", f"{more}ref='door'")
            async with staged(url, sending, references={"door": pem}) as out:
                await out.publish("T", {"n": 1})
                out.start("sink-T")

                async def settled(more: str = more, out: Stage = out) -> Any:
                    waits = [d.error for r in out.reports for d in r.connectors if d.error]
                    return await stage.events("S") if more else waits

                await stage.until("an answer or a reason", settled)
                assert len(await stage.events("S")) == bool(more)


@pytest.mark.slow
@pytest.mark.nats
async def test_browsers_listen_over_tls(nats_server: NatsServer, files: dict[str, str]) -> None:
    connector = {"tls.cert": files["cert"], "tls.key": files["key"]}
    known = ssl.create_default_context(cafile=files["cert"])

    url = f"https://127.0.0.1:{free_port()}/events"
    sse = LISTEN.replace("SINK", f"type='sse-server', server.url='{url}'")
    async with staged(nats_server.url, sse, references={"door": connector}) as stage:
        await stage.until_running(stage.start("sink-T"))
        async with httpx.AsyncClient(verify=known) as web, web.stream("GET", url) as answer:
            assert await anext(answer.aiter_lines()) == ": listening"
    port = free_port()
    ws = LISTEN.replace(
        "SINK", f"type='websocket-server', host='127.0.0.1', port='{port}', tls.enabled='true'"
    ).replace("Listen", "ListenTo")
    async with staged(nats_server.url, ws, references={"door": connector}) as stage:
        sending = await stage.until_running(stage.start("sink-T"))
        assert sending.error is None
        own = {"door": {"tls.ca": files["cert"]}}
        source = HEAR.replace("URL", f"wss://127.0.0.1:{port}")
        async with staged(nats_server.url, source, references=own) as hearing:
            await hearing.until_running(hearing.start("receiver-S"))
            await stage.publish("T", {"n": 7})

            async def heard() -> Any:
                return await hearing.events("S")

            assert await hearing.until("the event", heard) == [{"n": 7}]
        connected = websockets.asyncio.client.connect(
            f"wss://127.0.0.1:{port}", ssl=known, proxy=None
        )
        async with connected as other:
            await stage.publish("T", {"n": 1})
            assert await other.recv() == '{"n":1}'


@pytest.mark.slow
@pytest.mark.nats
def test_a_broker_asks_for_the_certificate_of_a_client(
    nats_server: NatsServer, files: dict[str, str], tmp_path: Path
) -> None:
    connectors = {
        "Pem": {"tls.ca": files["cert"], "tls.cert": files["cert"], "tls.key": files["key"]},
        "Store": {
            "truststore.file": files["store"], "truststore.password": "pw",
            "keystore.file": files["store"], "keystore.password": "pw",
        },
    }  # fmt: skip

    async def scene(name: str, url: str) -> None:
        text = MQTT.format(app=name, url=url)
        async with staged(nats_server.url, text, references={"door": connectors[name]}) as stage:
            await stage.until_running(stage.start("receiver-S"))
            stage.start("sink-T")
            await stage.publish("T", {"n": 1})

            async def arrived() -> Any:
                return await stage.events("S")

            assert await stage.until("the event", arrived) == [{"n": 1}]

    with broker(tmp_path, files) as url:
        for name in connectors:
            asyncio.run(scene(name, url))
        # With TLS 1.3 the refusal comes after the handshake, and the client waits for an answer.
        options = {"url": url, "tls.ca": files["cert"], "connection.timeout": "1000"}
        bare = Context("a", "s", options)
        with pytest.raises(UnavailableError):
            asyncio.run(MqttSink().open(bare, None))


@pytest.mark.nats
def test_files_that_are_no_certificates_are_named_without_their_content(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    path = tmp_path / "bad"
    path.write_text("hunter2")
    for options in ({"tls.cert": str(path)}, {"tls.store": str(path)}, {}):

        async def scene(options: dict[str, str] = options) -> None:
            async with staged(nats_server.url, APP.format(""), references={"door": options}) as one:
                one.start("receiver-S")
                await one.until("the reason", lambda: any(r.error for r in one.reports))
                said = next(r.error for r in one.reports if r.error)
                assert "hunter2" not in said
                assert (str(path) in said) == bool(options)

        asyncio.run(scene())


def test_connections_go_to_open_addresses_only() -> None:
    check_egress(NodeAccess(), "anything", 80)
    access = access_of(
        Settings(receiver=ReceiverSettings(egress="api.example.org:443, *.in:8000-8010"))
    )
    for host, port in (("api.example.org", 443), ("a.in", 8005)):
        check_egress(access, host, port)
    for host, port in (("api.example.org", 80), ("a.in", 9000), ("in", 8000), ("x", 443)):
        with pytest.raises(MeshError, match="may not connect"):
            check_egress(access, host, port)


@pytest.mark.nats
async def test_a_sink_with_a_closed_address_waits_with_the_reason(nats_server: NatsServer) -> None:
    text = OUT.format("http://169.254.169.254/x")
    access = NodeAccess(egress=("api.example.org:443",))
    async with staged(nats_server.url, text, access, {"door": {}}) as stage:
        stage.start("sink-T")

        def said() -> bool:
            connectors = [d.error or "" for r in stage.reports for d in r.connectors]
            return any("may not connect to 169.254.169.254:80" in one for one in connectors)

        await stage.until("the reason", said)
