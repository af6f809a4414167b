"""A NATS server with a few verbs, for tests of the connector."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol import connection_options, frames, jetstream
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.subscriptions import MessageListener
from pyspark_nats.sink import markers

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.jetstream import server
    from pyspark_nats.protocol.answers import Reply
    from pyspark_nats.sink.markers import Marker

#: A stream without notifications is read this often, seconds.
_LOOK_S: Final = 0.25
#: JetStream's codes of a refusal that passes: servers of a cluster that have just started again
#: can't place replicas yet (10005); the directory of all streams is being removed with the last one
#: (10049).
_PASSING: Final = {10005, 10049}
#: Time for a refusal to pass, seconds.
_PASSING_S: Final = 60.0
#: Messages that are read with one wait.
_PAGE: Final = 500


def call(connection: Connection, subject: str, **query: Any) -> dict[str, Any]:
    """A JetStream API call."""
    payload = json.dumps(query).encode() if query else b""
    return connection.retry_while_unavailable(
        subject, lambda: connection.requests([(f"$JS.API.{subject}", payload)])[0].json()
    )


def create_stream(connection: Connection, **config: Any) -> None:
    """Create a stream, again while the refusal of the server will pass.

    A test of ingest batches is skipped on a server that does not know them.
    """
    deadline_s = time.monotonic() + _PASSING_S
    while True:
        try:
            call(connection, f"STREAM.CREATE.{config['name']}", **config)
        except RefusedError as error:
            if 'unknown field "allow_batched"' in str(error):
                pytest.skip("nats-server has no ingest batches before 2.14")
            if error.err_code not in _PASSING or time.monotonic() > deadline_s:
                raise
        else:
            return


def _payload(reply: Reply, stream: str, subject: str) -> bytes | None:
    """The payload in an answer; None if the message is deleted or has another subject."""
    try:
        message = jetstream.answered(reply, stream)["message"]
    except RefusedError as error:
        if error.err_code == jetstream.NO_MESSAGE:
            return None
        raise
    return base64.b64decode(message.get("data", "")) if message["subject"] == subject else None


@dataclass
class Broker:
    """A server and a connection to it."""

    url: str
    connection: Connection

    @property
    def given(self) -> dict[str, str]:
        """The options of a connection to it."""
        return {"servers": self.url}

    def call(self, subject: str, **query: Any) -> dict[str, Any]:
        """A JetStream API call."""
        return call(self.connection, subject, **query)

    def create(self, name: str, *subjects: str, **config: Any) -> None:
        """Make a stream as the mesh makes its channels; by default of subject ``ev.{name}``."""
        create_stream(
            self.connection, name=name,
            subjects=[*(subjects or (f"ev.{name}",)), f"mesh._marker.{name}.>"],
            storage="file", allow_atomic=True,
            **{"num_replicas": 1, "allow_direct": True, **config},
        )  # fmt: skip

    def publish(self, subject: str, *payloads: bytes | str, **headers: str) -> list[int]:
        """Publish and wait for the acks; returns the sequences."""
        block = frames.header_block({k.replace("_", "-"): v for k, v in headers.items()})
        data = [p.encode() if isinstance(p, str) else p for p in payloads]

        def send() -> list[int]:
            replies = self.connection.reply_subjects(len(data))
            self.connection.send(
                b"".join(
                    frames.publish(subject, payload, reply=reply, header=block)
                    for payload, reply in zip(data, replies, strict=True)
                )
            )
            return [int(ack.json()["seq"]) for ack in self.connection.replies(replies)]

        return self.connection.retry_while_unavailable("publishing", send)

    def info(self, name: str) -> jetstream.StreamInfo:
        """Describe a stream."""
        return self.connection.retry_while_unavailable(
            "info", lambda: jetstream.stream_infos(self.connection, [name])[name]
        )

    def wait_until(
        self,
        name: str,
        holds: Callable[[], bool],
        what: str,
        timeout_s: float = 60.0,
        *,
        subject: str = "",
    ) -> None:
        """Wait until a condition holds of stream ``name``, checked when it stores a message.

        Args:
            name: of the stream.
            holds: reads the stream; an error that it raises ends the waiting.
            what: its name in the error.
            timeout_s: seconds.
            subject: of its rows, ``ev.{name}`` by default.
        """
        deadline_s = time.monotonic() + timeout_s
        options = connection_options.connection_options({**self.given, "timeoutS": "40"})
        listener = MessageListener(Connection(options))
        try:
            while True:
                # Before the check, so that later messages cause a notification.
                listener.listen({name: (subject or f"ev.{name}",)})
                if holds():
                    return
                assert time.monotonic() < deadline_s, f"not within {timeout_s:g} s: {what}"
                # A message may not be stored yet when its notification arrives, hence the limit of
                # one check.
                listener.wait(_LOOK_S)
                listener.poll()
        finally:
            listener.close()

    def marker(self, stream: str, producer: str) -> Marker:
        """The marker of a producer."""
        return markers.read(self.connection, "mesh._marker", [(stream, producer)])[
            (stream, producer)
        ]

    def payloads(self, name: str, subject: str, last: int | None = None) -> list[bytes]:
        """The payloads of the stream on ``subject``, in order, up to a sequence if it is given."""
        found: list[bytes] = []
        info = self.info(name)
        sequences = range(info.first, (info.last if last is None else last) + 1)
        for start in range(0, len(sequences), _PAGE):
            calls = [
                (f"$JS.API.STREAM.MSG.GET.{name}", json.dumps({"seq": sequence}).encode())
                for sequence in sequences[start : start + _PAGE]
            ]

            def read(calls: list[tuple[str, bytes]] = calls) -> list[bytes]:
                return [
                    data
                    for reply in self.connection.requests(calls)
                    if (data := _payload(reply, name, subject)) is not None
                ]

            found += self.connection.retry_while_unavailable("reading", read)
        return found


def connect(running: server.NatsServer, timeout_s: int = 20) -> Broker:
    """A broker on a running server."""
    given = {"servers": running.url, "timeoutS": str(timeout_s)}
    return Broker(running.url, Connection(connection_options.connection_options(given)))
