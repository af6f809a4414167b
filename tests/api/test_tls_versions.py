"""TLS before version 1.2 is refused, by the API and by NATS servers of ``mesh nats-config``."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import pytest

from mesh.clock import SystemClock
from mesh.http import certificate as certificates
from mesh.settings import ManagerSettings
from tests.support.api import FakeService, served
from tests.support.secured import SecuredServers

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1:DeprecationWarning")


def old_client() -> ssl.SSLContext:
    """A client that has TLS 1.0 and 1.1 only, and trusts every server."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    made.minimum_version = ssl.TLSVersion.TLSv1
    made.maximum_version = ssl.TLSVersion.TLSv1_1
    # OpenSSL has the algorithms of these versions at this level alone.
    made.set_ciphers("DEFAULT:@SECLEVEL=0")
    return made


async def version(port: int, context: ssl.SSLContext, *, says_first: bool = False) -> str:
    """The version of a connection; ``says_first``: the server sends a line before TLS begins."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        if says_first:
            await reader.readline()
        await writer.start_tls(context, server_hostname="localhost")
        return str(writer.get_extra_info("ssl_object").version())
    finally:
        # A close would wait for the server's goodbye.
        writer.transport.abort()


async def test_the_client_of_these_tests_gets_in_where_old_versions_are_allowed(
    tmp_path: Path,
) -> None:
    certificate, key = certificates.self_signed(tmp_path, SystemClock().wall_ms())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.load_cert_chain(certificate, key)

    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await version(port, old_client()) == "TLSv1.1"


async def test_the_api_takes_no_tls_before_1_2(tmp_path: Path) -> None:
    certificate, key = certificates.self_signed(tmp_path, SystemClock().wall_ms())
    settings = ManagerSettings(port=0, anonymous=True, tls_cert=str(certificate), tls_key=str(key))
    trusting = ssl.create_default_context(cafile=str(certificate))
    trusting.maximum_version = ssl.TLSVersion.TLSv1_2

    async with served(FakeService(), settings) as api:
        port = int(api.url.rpartition(":")[2])
        assert await version(port, trusting) == "TLSv1.2"
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await version(port, old_client())


@pytest.mark.nats
def test_a_server_of_nats_config_takes_no_tls_before_1_2(tmp_path: Path) -> None:
    servers = SecuredServers(tmp_path / "nats")
    try:
        port = servers.nodes["n1"].port
        _, client = servers.secured.contexts("worker")
        client.check_hostname = False
        client.maximum_version = ssl.TLSVersion.TLSv1_2
        assert asyncio.run(version(port, client, says_first=True)) == "TLSv1.2"
        with pytest.raises((ssl.SSLError, ConnectionError)):
            asyncio.run(version(port, old_client(), says_first=True))
    finally:
        servers.stop()
