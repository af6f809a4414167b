"""TLS and client certificates with a real server: who is trusted, and what is said before."""

from __future__ import annotations

import datetime
import socket
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_nats.errors import UnavailableError
from pyspark_nats.protocol import link
from pyspark_nats.protocol import tls as tls_module
from pyspark_nats.protocol.connection import DisconnectedError
from tests.support.certificates import Authority
from tests.support.logins import refused, use

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

    Serve = Callable[[str], NatsServer]


def tls(pair: Any, ca: Path, *lines: str) -> str:
    text = "; ".join((f'cert_file: "{pair.cert}"', f'key_file: "{pair.key}"', f'ca_file: "{ca}"'))
    return f"tls {{ {'; '.join((text, *lines))} }}"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_a_server_with_tls_is_trusted_by_its_authority(
    serve: Serve, authority: Authority, tmp_path: Path
) -> None:
    pair = authority.issue("server", hosts=("localhost", "127.0.0.1"))
    running = serve(tls(pair, authority.cert))
    use(running.url, tlsCa=authority.cert)
    use(f"tls://localhost:{running.port}", tlsCa=authority.cert)
    text = refused(running.url)
    assert f"the certificate of nats://127.0.0.1:{running.port} is not trusted" in text
    assert '"tlsCa"' in text
    other = Authority(tmp_path, "other")
    assert "is not trusted" in refused(running.url, tlsCa=other.cert)


def test_a_certificate_of_another_name_or_time_is_not_trusted(
    serve: Serve, authority: Authority
) -> None:
    pair = authority.issue("server", hosts=("localhost",))
    running = serve(tls(pair, authority.cert))
    use(f"nats://localhost:{running.port}", tlsCa=authority.cert)
    text = refused(running.url, tlsCa=authority.cert)
    assert "IP address mismatch" in text
    assert 'Name the server in "servers" as its certificate names it.' in text
    until = datetime.datetime(2021, 1, 1, tzinfo=datetime.UTC)
    past = authority.issue("past", hosts=("127.0.0.1",), until=until)
    assert "expired" in refused(serve(tls(past, authority.cert)).url, tlsCa=authority.cert)


def test_a_server_without_tls_gets_nothing_from_who_wants_it(
    serve: Serve, authority: Authority
) -> None:
    running = serve("authorization { token: t0ken }")
    use(running.url, token="t0ken")
    assert "offers no TLS" in refused(running.url, token="t0ken", tlsCa=authority.cert)
    assert "offers no TLS" in refused(f"tls://127.0.0.1:{running.port}", token="t0ken")
    assert "does not start with TLS" in refused(running.url, tlsFirst="true")


def test_client_certificates(serve: Serve, authority: Authority, tmp_path: Path) -> None:
    pair = authority.issue("server", hosts=("127.0.0.1",))
    client = authority.issue("ann")
    url = serve(tls(pair, authority.cert, "verify: true")).url
    given = {"tlsCa": authority.cert, "tlsCert": client.cert, "tlsKey": client.key}
    use(url, **given)
    assert '"tlsCert"' in refused(url, tlsCa=authority.cert)
    stranger = Authority(tmp_path, "other").issue("stranger")
    text = refused(url, tlsCa=authority.cert, tlsCert=stranger.cert, tlsKey=stranger.key)
    assert "refused the TLS handshake" in text


def test_a_client_certificate_may_say_who_we_are(serve: Serve, authority: Authority) -> None:
    pair = authority.issue("server", hosts=("127.0.0.1",))
    ann, bob = authority.issue("ann"), authority.issue("bob")
    url = serve(
        tls(pair, authority.cert, "verify_and_map: true")
        + '\nauthorization { users: [ { user: "CN=ann" } ] }'
    ).url
    use(url, tlsCa=authority.cert, tlsCert=ann.cert, tlsKey=ann.key)
    text = refused(url, tlsCa=authority.cert, tlsCert=bob.cert, tlsKey=bob.key)
    assert "Authorization Violation" in text


@pytest.mark.slow
def test_tls_before_the_first_line(serve: Serve, authority: Authority, tmp_path: Path) -> None:
    pair = authority.issue("server", hosts=("127.0.0.1",))
    # It waits so long for a handshake, which a busy client begins late, before it speaks itself.
    url = serve(tls(pair, authority.cert, "handshake_first: 900ms")).url
    use(url, tlsCa=authority.cert, tlsFirst="true")
    use(url, tlsCa=authority.cert)
    text = refused(url, tlsCa=Authority(tmp_path, "other").cert, tlsFirst="true")
    assert "is not trusted" in text


def test_authorities_are_loaded_before_a_server_waits_for_tls(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def connect(*_: Any, **__: Any) -> None:
        done.append("connect")
        raise DisconnectedError("far away")

    monkeypatch.setattr(tls_module, "context", lambda _: done.append("authorities"))
    monkeypatch.setattr(link, "Transport", connect)
    with pytest.raises(UnavailableError, match="no answer"):
        use("nats://127.0.0.1:1", tlsCa=authority.cert, tlsFirst="true", timeoutS="0.01")
    assert done[:2] == ["authorities", "connect"]


@pytest.mark.slow
def test_a_server_that_waits_for_tls_leads_to_the_option(
    serve: Serve, authority: Authority
) -> None:
    # Neither side sends anything: the server waits for TLS, and we for its first line.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(UnavailableError) as raised:
            use(f"nats://127.0.0.1:{silent.getsockname()[1]}", timeoutS="1")
        assert 'it may want option "tlsFirst"' in str(raised.value)
