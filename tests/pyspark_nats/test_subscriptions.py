"""Subscriptions to names that are heard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.connection_options import connection_options
from pyspark_nats.protocol.subscriptions import MessageListener

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]


def test_ears_hear_each_name_once(nats_server: NatsServer) -> None:
    known = connection_options({"servers": nats_server.url})
    ears, mouth = MessageListener(Connection(known)), Connection(known)

    def say(*subjects: str) -> None:
        lines = "".join(f"PUB {subject} 0\r\n\r\n" for subject in subjects).encode()
        mouth.retry_while_unavailable("saying", lambda: mouth.send(lines))

    wanted = {"a": ("x.a", "y.a"), "b": ("x.b",)}
    assert ears.listen(wanted) == {"a", "b"}
    assert ears.listen(wanted) == set()
    say("x.a", "y.a", "x.a", "x.c")
    ears.wait(5)
    assert ears.poll() == {"a"}
    assert ears.listen(wanted) == {"a"}
    ears.forget("b")
    say("x.b", "y.a")
    ears.wait(5)
    assert ears.poll() == {"a"}
    ears.close()
    # A newly created one receives nothing, and reports that.
    assert ears.listen(wanted) == {"a", "b"}
    ears.close()
    mouth.close()
