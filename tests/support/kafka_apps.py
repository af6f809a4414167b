"""Apps with sources and sinks of Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.kafka import Kafka

APP = """@App:name('{app}')
SOURCE define stream S (n int);
SINK define stream T (n int);
from S select n insert into T;
"""
SOURCE = (
    "@source(type='kafka', bootstrap.servers='{servers}', topic.list='TOPIC', group.id='g',"
    " threading.option='single.thread'MORE, @map(type='json'))"
)
SINK = (
    "@sink(type='kafka', bootstrap.servers='{servers}', topic='TOPIC'MORE,"
    " @map(type='json', envelope='none'))"
)


def app(kafka: Kafka, topic: str, *, source: str | None = None, sink: str | None = None) -> str:
    """The app with the source or sink of a topic, and further options."""
    found = APP.replace("SOURCE", "" if source is None else SOURCE.replace("MORE", source))
    found = found.replace("SINK", "" if sink is None else SINK.replace("MORE", sink))
    return found.replace("TOPIC", topic).replace("{servers}", kafka.servers)
