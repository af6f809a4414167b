"""All methods of authentication, right and wrong, with a real server; without and with TLS."""

from __future__ import annotations

import datetime
import json
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from mesh.jetstream import server
from pyspark_nats.errors import RefusedError, UnavailableError
from pyspark_nats.protocol import jetstream, link
from pyspark_nats.protocol import tls as tls_module
from pyspark_nats.protocol.connection import Connection, DisconnectedError
from pyspark_nats.protocol.connection_options import connection_options
from tests.support import jwts
from tests.support.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

    Serve = Callable[[str], NatsServer]

#: A refusal is known at once; a longer time means that it was tried again.
AT_ONCE_S = 60.0


def use(servers: str, **given: Any) -> None:
    """Make a stream, which needs all that reading and writing needs: answers, and JetStream."""
    texts = {name: str(value) for name, value in given.items()}
    options = connection_options({"servers": servers, "timeoutS": "10", **texts})
    with Connection(options) as connection:
        call = ("$JS.API.STREAM.CREATE.S", json.dumps({"name": "S", "subjects": ["s"]}).encode())
        connection.retry_while_unavailable("create", lambda: connection.requests([call])[0].json())
        connection.retry_while_unavailable(
            "look", lambda: jetstream.stream_infos(connection, ["S"])
        )


def refused(servers: str, **given: Any) -> str:
    began_s = time.monotonic()
    with pytest.raises(RefusedError) as raised:
        use(servers, **{"timeoutS": "200", **given})
    assert time.monotonic() - began_s < AT_ONCE_S
    return str(raised.value)


def test_user_and_password(serve: Serve) -> None:
    url = serve('authorization { user: ann, password: "p@ss" }').url
    use(url, user="ann", password="p@ss")
    use(url.replace("//", "//ann:p%40ss@"))
    text = refused(url, user="ann", password="secret")
    assert "Authorization Violation" in text
    assert 'we gave user "ann"' in text
    assert "secret" not in text
    assert "we gave no credentials" in refused(url)
    assert "Authorization Violation" in refused(url.replace("//", "//ann:secret@"))


def test_a_token(serve: Serve) -> None:
    url = serve("authorization { token: t0ken }").url
    use(url, token="t0ken")
    use(url.replace("//", "//t0ken@"))
    text = refused(url, token="secret")
    assert "we gave a token" in text
    assert "secret" not in text


def test_an_nkey(serve: Serve, tmp_path: Path) -> None:
    user, other = jwts.key("user"), jwts.key("user")
    url = serve(f"authorization {{ users: [ {{ nkey: {user.public} }} ] }}").url
    use(url, nkeySeed=user.seed)
    path = tmp_path / "ann.nk"
    path.write_text(user.seed)
    use(url, nkeySeedFile=path)
    assert f"we gave the nkey {other.public}" in refused(url, nkeySeed=other.seed)
    assert "takes no nkeys" in refused(serve("").url, nkeySeed=user.seed)


def test_a_credentials_file(serve: Serve, tmp_path: Path) -> None:
    operator, user = jwts.Operator(), jwts.key("user")
    url = serve(operator.configuration()).url
    path = jwts.creds(tmp_path / "ann.creds", operator.user_jwt(user), user.seed)
    use(url, credentials=path)
    jwts.creds(path, jwts.Operator().user_jwt(user), user.seed)
    assert "we gave the JWT of user ann" in refused(url, credentials=path)
    jwts.creds(path, operator.user_jwt(user, expires_s=1_700_000_001), user.seed)
    assert "which expires at 2023-11-14T22:13:21+00:00" in refused(url, credentials=path)


def test_a_jwt_that_expires_while_it_is_used_is_said_so(serve: Serve, tmp_path: Path) -> None:
    operator, user = jwts.Operator(), jwts.key("user")
    url = serve(operator.configuration()).url
    soon_s = int(datetime.datetime.now(datetime.UTC).timestamp()) + 4  # noqa: TID251
    jwt = operator.user_jwt(user, expires_s=soon_s)
    path = jwts.creds(tmp_path / "ann.creds", jwt, user.seed)
    options = connection_options({"servers": url, "credentials": str(path)})
    with Connection(options) as connection:

        def listen() -> None:
            sid = connection.subscribe("s", most=1)
            connection.wait_for_message({sid}, 10)

        with pytest.raises(RefusedError, match="User Authentication Expired"):
            connection.retry_while_unavailable("listen", listen)


def test_an_account_that_expired_is_refused(serve: Serve, tmp_path: Path) -> None:
    operator, user = jwts.Operator(), jwts.key("user")
    url = serve(operator.configuration(account_expires_s=1_700_000_001)).url
    path = jwts.creds(tmp_path / "ann.creds", operator.user_jwt(user), user.seed)
    assert "NATS refused the connection" in refused(url, credentials=path)


def test_a_context_of_the_command_line(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    operator, user = jwts.Operator(), jwts.key("user")
    url = serve(operator.configuration()).url
    creds = jwts.creds(tmp_path / "ann.creds", operator.user_jwt(user), user.seed)
    directory = tmp_path / "nats/context"
    directory.mkdir(parents=True)
    (directory / "prod.json").write_text(json.dumps({"url": url, "creds": str(creds)}))
    options = connection_options({"context": "prod"})
    with Connection(options) as connection:
        call = ("$JS.API.INFO", b"")
        connection.retry_while_unavailable("info", lambda: connection.requests([call])[0].json())


def test_a_server_that_refuses_us_is_passed_over(serve: Serve) -> None:
    one = serve("authorization { token: one }").url
    other = serve("authorization { token: other }").url
    use(f"{one},{other}", token="other")
    use(f"{one.replace('//', '//wrong@')},{other.replace('//', '//other@')}")
    nobody = f"nats://127.0.0.1:{server.free_port()}"
    use(f"{nobody},{one},{other}", token="other")
    assert "Authorization Violation" in refused(f"{one},{nobody},{other}", token="neither")


# --- permissions


def test_an_inbox_prefix_for_a_user_who_may_use_no_other(serve: Serve) -> None:
    url = serve(
        """accounts { A { jetstream: enabled, users: [ {
            user: ann, password: pw, permissions: { publish: ["$JS.>"], subscribe: ["_I.ann.>"] }
        } ] } }"""
    ).url
    use(url, user="ann", password="pw", inboxPrefix="_I.ann")
    text = refused(url, user="ann", password="pw")
    assert 'we may not subscribe to "_INBOX.' in text
    assert '"inboxPrefix"' in text


def test_a_subject_that_is_denied_is_named_at_once(serve: Serve) -> None:
    url = serve(
        """accounts { A { jetstream: enabled, users: [
            { user: root, password: pw }
            { user: ann, password: pw, permissions: { publish: ["$JS.API.STREAM.INFO.*"],
              subscribe: ["_INBOX.>"] } }
        ] } }"""
    ).url
    use(url, user="root", password="pw")
    text = refused(url, user="ann", password="pw")
    assert 'we may not publish to "$JS.API.STREAM.CREATE.S"' in text
    options = connection_options({"servers": url, "user": "ann", "password": "pw"})
    with Connection(options) as connection:

        def publish() -> None:
            _, inbox = connection.new_inbox()
            connection.send(f"PUB s {inbox} 2\r\nhi\r\n".encode())
            while not len(connection.take_frames()):
                connection.receive(time.monotonic() + 5)

        with pytest.raises(RefusedError, match='may not publish to "s"'):
            connection.retry_while_unavailable("publish", publish)

        # A refused subscription only delays the wake-up.
        def listen() -> bool:
            sid = connection.subscribe("s", most=1)
            return connection.wait_for_message({sid}, 0.2)

        assert not connection.retry_while_unavailable("listen", listen)
        connection.retry_while_unavailable(
            "look", lambda: jetstream.stream_infos(connection, ["S"])
        )


def test_jetstream_of_a_domain_and_of_another_account(serve: Serve) -> None:
    url = serve(
        """jetstream { domain: hub }
        accounts {
            A { jetstream: enabled, users: [ { user: ann, password: pw } ],
                exports: [ { service: "$JS.hub.API.>", response: stream } ] }
            B { users: [ { user: bob, password: pw } ], imports: [
                { service: { account: A, subject: "$JS.hub.API.>" }, to: "from.ann.>" } ] }
        }"""
    ).url

    def names(**given: str) -> Any:
        options = connection_options({"servers": url, "password": "pw", **given})
        with Connection(options) as connection:
            call = (connection.api("STREAM.NAMES"), b"")
            return connection.retry_while_unavailable(
                "names", lambda: connection.requests([call])[0].json()
            )

    for given in (
        {"user": "ann", "jsDomain": "hub"},
        {"user": "ann", "jsApiPrefix": "$JS.hub.API."},
        {"user": "bob", "jsApiPrefix": "from.ann"},
    ):
        assert names(**given)["type"] == "io.nats.jetstream.api.v1.stream_names_response"


# --- TLS


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


def test_a_server_that_waits_for_tls_leads_to_the_option(
    serve: Serve, authority: Authority
) -> None:
    # Neither side sends anything: the server waits for TLS, and we for its first line.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(UnavailableError) as raised:
            use(f"nats://127.0.0.1:{silent.getsockname()[1]}", timeoutS="1")
        assert 'it may want option "tlsFirst"' in str(raised.value)
