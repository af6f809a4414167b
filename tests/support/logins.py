"""Logins at a real server."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol import jetstream
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.connection_options import connection_options

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
