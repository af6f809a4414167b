"""All methods of authentication, right and wrong, with a real server."""

from __future__ import annotations

import datetime
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from mesh.jetstream import server
from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol import jetstream
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.connection_options import connection_options
from tests.support import jwts
from tests.support.logins import refused, use

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

    Serve = Callable[[str], NatsServer]
    from tests.support.environment import Variables


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


@pytest.mark.slow
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
    serve: Serve, tmp_path: Path, environment: Variables
) -> None:
    environment["XDG_CONFIG_HOME"] = str(tmp_path)
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
