"""The handshake: what its errors mean, and whether TLS is wanted."""

from __future__ import annotations

import pytest

from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol import handshake, servers
from pyspark_nats.protocol.credentials import NOBODY
from pyspark_nats.protocol.tls import DEFAULT
from pyspark_nats.protocol.transport import DisconnectedError


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Authorization Violation", RefusedError),
        ("User Authentication Expired", RefusedError),
        ("User Authentication Revoked", RefusedError),
        ("Account Authentication Expired", RefusedError),
        ("Maximum Payload Violation", RefusedError),
        ("maximum control line exceeded", RefusedError),
        ("Authentication Timeout", DisconnectedError),
        ("Stale Connection", DisconnectedError),
        ("Slow Consumer", DisconnectedError),
        ("maximum connections exceeded", DisconnectedError),
    ],
)
def test_errors_that_come_again_are_not_tried_again(text: str, kind: type[Exception]) -> None:
    assert type(handshake.meaning(text, servers.parse("h", ""), NOBODY)) is kind


def test_what_is_denied_is_told_from_what_only_wakes_us() -> None:
    publish = 'Permissions Violation for Publish to "a.b"'
    ours = 'Permissions Violation for Subscription to "_INBOX.x.*"'
    queue = 'Permissions Violation for Subscription to "ev.>" using queue "q"'
    assert "a.b" in str(handshake.denial(publish, "_INBOX.x"))
    assert "inboxPrefix" in str(handshake.denial(ours, "_INBOX.x"))
    assert handshake.denial(queue, "_INBOX.x") is None
    assert handshake.denial("Something else", "_INBOX.x") is None


def test_tls_is_wanted_where_either_side_wants_it() -> None:
    plain, encrypted = servers.parse("h", ""), servers.parse("tls://h", "")
    assert not handshake.wants_tls(plain, {}, DEFAULT)
    assert not handshake.wants_tls(plain, {"tls_available": True}, DEFAULT)
    assert handshake.wants_tls(plain, {"tls_required": True}, DEFAULT)
    assert handshake.wants_tls(encrypted, {"tls_available": True}, DEFAULT)
