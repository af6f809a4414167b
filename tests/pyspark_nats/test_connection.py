"""Connections that break, move, slow down and grow large."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from mesh.jetstream import server
from pyspark_nats.errors import RefusedError, UnavailableError
from pyspark_nats.protocol import frames, link
from tests.support import jwts
from tests.support.certificates import Authority
from tests.support.fake_servers import MB, Fake, connect, drain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from pyspark_nats.protocol.connection import Connection


def echo(connection: Connection, size: int = 10) -> int:
    """Send ourselves a message, and return the size received."""

    def step() -> int:
        _, inbox = connection.new_inbox()
        connection.send(frames.publish(inbox, b"x" * size))
        while True:
            found = connection.take_frames()
            if len(found):
                return len(found.data[0].as_py())
            connection.receive(time.monotonic() + 5)

    return connection.retry_while_unavailable("echo", step)


def test_what_is_held_back_is_sent_together_and_before_a_wait(nats_server: NatsServer) -> None:
    reader, writer = connect(nats_server.url), connect(nats_server.url)
    pieces: list[int] = []

    def arrived(count: int) -> bytes:
        found = b""
        while count:
            reader.receive(time.monotonic() + 5)
            for one in reader.take_frames().data.to_pylist():
                found, count = found + one, count - 1
        return found

    with reader, writer:
        reader.retry_while_unavailable("listening", lambda: reader.subscribe("held", most=100))
        echo(reader)
        echo(writer)
        send = writer._link.send

        def noted(data: bytes) -> None:
            pieces.append(len(data))
            send(data)

        writer._link.send = noted  # type: ignore[method-assign]
        writer.hold()
        for n in range(3):
            writer.send(frames.publish("held", b"%d" % n))
        assert not pieces
        # It waits for an answer to what is sent last.
        echo(writer)
        assert arrived(3) == b"012"
        writer.send(frames.publish("held", b"3"))
        writer.send(frames.publish("held", b"x" * (64 << 10)))
        before = len(pieces)
        writer.send(frames.publish("held", b"4"))
        writer.release()
        writer.send(frames.publish("held", b"5"))
        assert len(pieces) == before + 2
        assert arrived(4).replace(b"x", b"") == b"345"


def test_a_failure_of_what_was_held_back_closes_the_connection(nats_server: NatsServer) -> None:
    connection = connect(nats_server.url)
    echo(connection)
    made = connection.open_count
    connection.hold()
    connection.send(frames.publish("held", b"lost"))
    connection._link._transport._socket.shutdown(socket.SHUT_RDWR)
    connection.release()
    assert not connection.is_open
    echo(connection)
    assert connection.open_count == made + 1
    connection.close()


# --- servers that start and stop


def test_a_server_that_is_killed_and_comes_back_is_ridden_through(tmp_path: Path) -> None:
    authority, user = Authority(tmp_path), jwts.key("user")
    pair = authority.issue("server", hosts=("127.0.0.1",))
    path = tmp_path / "nats.conf"
    path.write_text(
        f'tls {{ cert_file: "{pair.cert}"; key_file: "{pair.key}" }}\n'
        f"authorization {{ users: [ {{ nkey: {user.public} }} ] }}"
    )
    arguments = ["-c", str(path)]
    running = server.start(tmp_path / "nats", port=server.free_port(), arguments=arguments)
    connection = connect(running.url, nkeySeed=user.seed, tlsCa=str(authority.cert))
    try:
        assert echo(connection) == 10
        running.process.send_signal(signal.SIGKILL)
        running.process.wait()
        running = server.start(tmp_path / "nats", port=running.port, arguments=arguments)
        assert echo(connection) == 10
    finally:
        connection.close()
        running.stop()


def test_servers_that_stay_away_are_named_without_secrets() -> None:
    port = server.free_port()
    connection = connect(f"nats://ann:secret@127.0.0.1:{port}", timeoutS="0.3")
    with pytest.raises(UnavailableError) as raised:
        echo(connection)
    assert f"Servers: nats://127.0.0.1:{port}; last: " in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[NatsServer]]:
    """Three servers that know each other."""
    ports = server.free_ports(3)
    routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports)
    running: list[NatsServer] = []
    try:
        for number, port in enumerate(ports):
            directory = tmp_path / f"n{number}"
            directory.mkdir()
            path = directory / "nats.conf"
            path.write_text(
                f"server_name: n{number}\nlame_duck_duration: 30s\nlame_duck_grace_period: 5s\n"
                f"cluster {{ name: c, listen: 127.0.0.1:{port}, routes: [{routes}] }}"
            )
            running.append(server.start(directory, arguments=["-c", str(path)]))
        yield running
    finally:
        for one in running:
            one.stop()


def test_a_server_that_says_nothing_is_left_for_another_and_not_tried_first_again(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Calls that wait for the handshake fail; urgent ones don't.
    monkeypatch.setattr(link, "_HANDSHAKE_S", 60.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"127.0.0.1:{silent.getsockname()[1]},{nats_server.url}"
        for hurry_s in (0.1, 60.0):
            monkeypatch.setattr(link, "_HURRY_S", hurry_s)
            with connect(url) as connection:
                assert echo(connection) == 10
                assert connection.open_count == 1
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()


def wait_until_all_are_known(connection: Connection) -> None:
    """Wait until the servers, which announce each other on their own, have announced all three."""
    echo(connection)
    while len(connection.info.get("connect_urls", ())) < 3:
        assert connection.is_readable(30)
        echo(connection)


def test_the_other_servers_of_a_cluster_are_learned(
    cluster: list[NatsServer],
) -> None:
    with connect(cluster[0].url) as connection:
        wait_until_all_are_known(connection)
        for dead, alive in ((cluster[0], 2), (cluster[1], 1)):
            dead.process.send_signal(signal.SIGKILL)
            dead.process.wait()
            assert echo(connection) == 10
            assert connection.info["port"] in [one.port for one in cluster[-alive:]]


def test_a_server_that_is_about_to_go_is_left_between_steps(
    cluster: list[NatsServer],
) -> None:
    with connect(cluster[0].url) as connection:
        wait_until_all_are_known(connection)
        assert connection.info["server_name"] == "n0"
        cluster[0].process.send_signal(signal.SIGUSR2)

        # The server announces its end; the next step leaves it.
        while not connection.info.get("ldm"):
            assert connection.is_readable(30)
            echo(connection)
            if connection.info["server_name"] != "n0":
                break
        echo(connection)
        assert connection.info["server_name"] != "n0"
        # The server still worked for us: it did not close the connection.
        assert cluster[0].process.poll() is None
        # The server would wait until no client is connected.
        cluster[0].process.kill()


# --- errors of the server


def test_a_message_over_the_limit_is_refused_and_not_tried_again(nats_server: NatsServer) -> None:
    with connect(nats_server.url) as connection, pytest.raises(RefusedError) as raised:
        echo(connection, 8 * MB)
    assert "Maximum Payload Violation" in str(raised.value)


# --- slow servers, and large messages


def test_sending_and_being_sent_to_do_not_wait_for_each_other() -> None:
    size, taken = 24 * MB, []

    def then(client: socket.socket) -> None:
        # Reads nothing until all its own data is sent.
        client.sendall(b"MSG s 1 %d\r\n%s\r\n" % (size, b"y" * size))
        taken.append(drain(client, size))

    with Fake(then) as fake, connect(fake.url) as connection:

        def step() -> int:
            connection.send(b"x" * size)
            while not len(found := connection.take_frames()):
                connection.receive(time.monotonic() + 5)
            return len(found.data[0].as_py())

        assert connection.retry_while_unavailable("both", step) == size
    assert taken == [size]


def test_a_large_message_that_comes_slowly_is_waited_for_and_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size, never, begun = 8 * MB, threading.Event(), threading.Event()

    def then(client: socket.socket) -> None:
        message = b"MSG s 1 %d\r\n%s\r\n" % (size, b"y\n" * (size // 2))
        for at in range(0, len(message), MB):
            client.sendall(message[at : at + MB])
            begun.set()
            never.wait(0.1)

    looked: list[int] = []
    split = frames.split

    def counted(buffer: bytes) -> frames.Frames:
        looked.append(len(buffer))
        return split(buffer)

    with Fake(then) as fake, connect(fake.url) as connection:

        def step() -> int:
            monkeypatch.setattr(frames, "split", counted)
            # Its beginning is there; the rest needs longer than the deadline.
            assert begun.wait(60)
            deadline_s = time.monotonic() + 0.3
            while not len(found := connection.take_frames()):
                connection.receive(deadline_s)
            return len(found.data[0].as_py())

        assert connection.retry_while_unavailable("receive", step) == size
    assert len(looked) <= 4


@pytest.mark.slow
def test_messages_up_to_64_mb_are_published_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "nats.conf"
    path.write_text("max_payload: 64MB\nmax_pending: 128MB\n")
    running = server.start(tmp_path / "nats", arguments=["-c", str(path)])
    try:
        with connect(running.url) as connection:
            assert echo(connection, 60 * MB) == 60 * MB
            create_stream(connection, "M", storage="memory")
            assert stored_and_read(connection, "M", os.urandom(MB) * 60)
            create_stream(connection, "F", storage="file")
            assert stored_and_read(connection, "F", os.urandom(MB) * 31)
            with pytest.raises(RefusedError) as raised:
                stored_and_read(connection, "F", os.urandom(MB) * 33)
            assert "less than 32 MB" in str(raised.value)
    finally:
        running.stop()


def create_stream(connection: Connection, name: str, **config: Any) -> None:
    given = json.dumps({"name": name, "subjects": [name], "allow_direct": True, **config})
    call = (f"$JS.API.STREAM.CREATE.{name}", given.encode())
    connection.retry_while_unavailable("create", lambda: connection.requests([call])[0].json())


def stored_and_read(connection: Connection, name: str, payload: bytes) -> bool:
    def publish() -> int:
        reply = connection.reply_subjects(1)
        connection.send(frames.publish(name, payload, reply=reply[0]))
        return int(connection.replies(reply, 20)[0].json()["seq"])

    sequence = connection.retry_while_unavailable("publish", publish)

    def read() -> bytes:
        _, inbox = connection.new_inbox()
        query = json.dumps({"seq": sequence}).encode()
        connection.send(frames.publish(f"$JS.API.DIRECT.GET.{name}", query, reply=inbox))
        while not len(found := connection.take_frames()):
            connection.receive(time.monotonic() + 5)
        return bytes(found.data[0].as_py())

    return connection.retry_while_unavailable("read", read) == payload
