"""Errors that no connector foresees: readers report them, and replays answer with them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import nats
import orjson
import pytest
import websockets.asyncio.client

from mesh.connect.contract import Context, NodeAccess, UnavailableError
from mesh.model import names
from mesh.receiver.positions import listen
from mesh.receiver.types import mqtt
from mesh.receiver.types.file_source import FileSource
from mesh.receiver.types.mqtt import MqttSource
from mesh.receiver.types.websocket import WebSocketSource
from tests.support.connectors import staged

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.receiver.positions import Replayed


class Unforeseen(Exception):
    """An error of a library that its documentation does not have."""


class Socket:
    """A WebSocket with one message."""

    def __init__(self) -> None:
        self.messages = ["first"]

    async def recv(self) -> str:
        if self.messages:
            return self.messages.pop()
        raise Unforeseen("a frame of no kind")

    async def close(self) -> None:
        """Nothing is open."""

    @property
    def transport(self) -> Socket:
        """The socket itself."""
        return self

    def abort(self) -> None:
        """Nothing is open."""


class Connecting:
    """A connection that is opened when it is awaited."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Whatever the address."""

    def __await__(self) -> Generator[Any, None, Socket]:
        return asyncio.sleep(0, Socket()).__await__()


class Broker:
    """A client of MQTT whose first message has no kind."""

    on_connect: Any = None

    def __init__(self) -> None:
        self._client = self

    def manual_ack_set(self, wanted: bool) -> None:
        """Nothing is acknowledged."""

    async def __aenter__(self) -> None:
        """Log in."""

    async def __aexit__(self, *_: object) -> None:
        """Log out."""

    async def subscribe(self, topic: str, qos: int) -> tuple[int, ...]:
        """Grant all."""
        return (qos,)

    @property
    def messages(self) -> Broker:
        return self

    def __aiter__(self) -> Broker:
        return self

    async def __anext__(self) -> Any:
        raise Unforeseen("a packet of no kind")


@pytest.mark.parametrize(
    ("kind", "options"),
    [(WebSocketSource, {"url": "ws://127.0.0.1:1/"}), (MqttSource, {"topic": "t"})],
)
async def test_a_reader_that_meets_one_reports_it(
    monkeypatch: pytest.MonkeyPatch,
    kind: type[WebSocketSource | MqttSource],
    options: dict[str, str],
) -> None:
    monkeypatch.setattr(websockets.asyncio.client, "connect", Connecting)
    monkeypatch.setattr(mqtt, "client_of", lambda *_, **__: Broker())

    source = kind()
    await source.open(Context("A", "S", options), None)

    async def read() -> None:
        # The host calls it again and again.
        for _ in range(3):
            await source.read()

    try:
        with pytest.raises(UnavailableError, match="of no kind"):
            await read()
    finally:
        await source.close()


@pytest.mark.nats
@pytest.mark.parametrize(
    ("question", "said"),
    [
        (b"no JSON", "JSONDecodeError"),
        (b"[" * 2000, "JSONDecodeError"),
        (b'{"payload": 7}', "TypeError"),
        (
            b'{"id":1,"connector":"d","sequence":1,"index":0,"payload":"","options":{}}',
            "Unforeseen: a text ? of no encoding",
        ),
    ],
    ids=["no-json", "deep", "no-payload", "no-encoding"],
)
async def test_a_replay_that_meets_one_is_answered(
    nats_server: NatsServer, question: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    # A report of pytest-xdist has an encoding.
    caplog.set_level(logging.CRITICAL, "mesh.receiver.positions")

    async def take(_: Replayed) -> str | None:
        raise Unforeseen("a text \ud800 of no encoding")

    client = await nats.connect(nats_server.url)
    try:
        await listen(client, "A", "g", take)
        answer = await client.request(names.connector_subject("A", "g"), question, timeout=30)
        assert said in orjson.loads(answer.data)["away"]
    finally:
        await client.close()


APP = """@App:name('Odd')
@source(type='file', file.uri='{path}', mode='line', tailing='true', @map(type='csv'))
define stream S (n int);
from S select n insert into T;
"""


@pytest.mark.slow
@pytest.mark.nats
async def test_a_source_that_fails_alike_again_and_again_is_named_and_goes_on(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "in.csv"
    path.write_text("1\n2\n")
    read, failures = FileSource.read, iter(range(7))

    async def fails(self: FileSource) -> Any:
        if next(failures, None) is None:
            return await read(self)
        raise Unforeseen("a column of no kind")

    monkeypatch.setattr(FileSource, "read", fails)
    text = APP.format(path=path)
    async with staged(nats_server, text, NodeAccess(file_roots=(str(tmp_path),))) as stage:
        stage.start("receiver-S")

        async def both() -> bool:
            return await stage.events("S") == [{"n": 1}, {"n": 2}]

        await stage.until("all lines, once", both)
        errors = list(dict.fromkeys(one.error for one in stage.reports if one.error))
        assert errors[0] == "Unforeseen: a column of no kind"
        assert errors[1] == (
            'source or sink "source file" failed 5 times alike: Unforeseen: a column of no kind '
            "[MESH-C136]: It is tried again.  The log of w1 has the place."
        )
        assert stage.reports[-1].error is None
