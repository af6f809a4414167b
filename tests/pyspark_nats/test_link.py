"""Links to servers that are slow, stuck, or speak otherwise."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from pyspark_nats.protocol import link, servers
from pyspark_nats.protocol.connection_options import connection_options
from pyspark_nats.protocol.transport import DisconnectedError
from tests.support.fake_servers import MB, Fake, connect, drain


@pytest.mark.slow
def test_a_slow_server_slows_us_down_and_a_stuck_one_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link, "_STALL_S", 1.0)
    size, go_on = 24 * MB, threading.Event()

    def slowly(client: socket.socket) -> None:
        for _ in range(48):
            drain(client, MB // 2)
            go_on.wait(0.05)

    with Fake(slowly) as fake, connect(fake.url) as connection:
        began_s = time.monotonic()
        connection.retry_while_unavailable("send", lambda: connection.send(b"x" * size))
        # Longer than the limit of a standstill; the last few MB are the kernel's to send.
        assert time.monotonic() - began_s > 1.0

    def stuck(_: socket.socket) -> None:
        go_on.wait(10)

    with Fake(stuck) as fake:
        made = link.Link(servers.parse(fake.url, ""), options(fake), lambda _: None)
        with pytest.raises(DisconnectedError, match="takes no data"):
            made.send(b"x" * 64 * MB)
        go_on.set()
        made.close()


def options(fake: Fake) -> Any:
    return connection_options({"servers": fake.url})


def test_what_comes_in_plain_before_tls_is_not_believed() -> None:
    said = b'{"tls_required": true}\r\nMSG s 1 2\r\nhi'
    with Fake(lambda _: None, said) as fake, pytest.raises(DisconnectedError, match="before TLS"):
        link.Link(servers.parse(fake.url, ""), options(fake), lambda _: None)


def test_who_does_not_speak_nats_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            client, _ = listener.accept()
            with client:
                client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(DisconnectedError, match="does not speak NATS"):
            link.Link(
                servers.parse(f"nats://127.0.0.1:{listener.getsockname()[1]}", ""),
                connection_options({"servers": "h"}),
                lambda _: None,
            )
        thread.join()
