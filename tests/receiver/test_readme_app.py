"""The README's app of sources and sinks, word for word, with a broker and a client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.connectors import staged

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer
    from tests.support.kafka import Kafka

pytestmark = pytest.mark.nats

README = Path(__file__).parents[2] / "README.md"


def app_of_readme() -> str:
    """The indented block that begins with the app's name."""
    page = README.read_text("utf-8")
    lines = page[page.index("    @App:name('Alarm')") :].splitlines()
    end = next(at for at, line in enumerate(lines) if not line.strip())
    return "\n".join(line.strip() for line in lines[:end])


async def test_the_app_takes_requests_and_writes_a_topic(
    nats_server: NatsServer, kafka: Kafka
) -> None:
    kafka.create("alarms")
    text = app_of_readme().replace("127.0.0.1:9092", kafka.servers)
    text = text.replace("127.0.0.1:8280", "127.0.0.1:0")

    async with staged(nats_server, text) as stage:
        source = await stage.until_running(stage.start("receiver-Readings"))
        stage.start("sink-Alarms")
        event = {"sensor": "boiler", "value": 41.5}
        async with httpx.AsyncClient() as client:
            answer = await client.post(source.connectors[0].endpoint, json={"event": event})
        assert answer.status_code == 200
        assert await stage.events("Readings") == [event]
        # The query between the two needs Spark.
        await stage.publish("Alarms", event)
        await stage.until("a record", lambda: kafka.records("alarms"))
    ((_, key, payload),) = kafka.records("alarms")
    assert (key, json.loads(payload)) == (b"boiler", {"sensor": "boiler", "value": 41.5})
