"""A certificate that is renewed on the disk is used by new connections."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import anyio
import pytest

from mesh.api import server
from mesh.settings import ManagerSettings
from tests.support.api import FakeService, served
from tests.support.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path


async def shown(port: int) -> bytes:
    """The certificate that a new connection gets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert isinstance(found, bytes)
        return found
    finally:
        writer.transport.abort()


def der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text().partition("-----END")[0] + END)


END = "-----END CERTIFICATE-----\n"


async def test_new_connections_get_the_renewed_certificate_and_never_half_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "_CERTIFICATE_LOOK_S", 0.02)
    authority = Authority(tmp_path)
    first, second = (authority.issue(name, hosts=("127.0.0.1",)) for name in ("one", "two"))
    # As a secret is mounted: a link that is switched over.
    used = tmp_path / "used"
    for pair, place in ((first, "first"), (second, "second")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "api.crt").write_bytes(pair.cert.read_bytes())
        (tmp_path / place / "api.key").write_bytes(pair.key.read_bytes())
    used.symlink_to("first")
    settings = ManagerSettings(
        port=0, anonymous=True, tls_cert=str(used / "api.crt"), tls_key=str(used / "api.key")
    )
    async with served(FakeService(), settings) as api:
        port = int(api.url.rpartition(":")[2])
        assert await shown(port) == der(first.cert)
        # The new certificate with the old key.
        old = (tmp_path / "first" / "api.crt").read_bytes()
        (tmp_path / "first" / "api.crt").write_bytes(second.cert.read_bytes())
        with anyio.fail_after(20):
            while not any("not read again" in line for line in caplog.messages):
                await anyio.lowlevel.checkpoint()
        assert await shown(port) == der(first.cert)
        (tmp_path / "first" / "api.crt").write_bytes(old)

        (tmp_path / "next").symlink_to("second")
        (tmp_path / "next").replace(used)
        with anyio.fail_after(20):
            while await shown(port) != der(second.cert):
                await anyio.lowlevel.checkpoint()
