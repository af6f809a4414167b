"""Apps with sources and sinks of RabbitMQ."""

from __future__ import annotations

APP = """@App:name('{app}')
SOURCE define stream S (n int);
SINK define stream T (n int);
from S select n insert into T;
"""
SOURCE = (
    "@source(type='rabbitmq', uri='{uri}', exchange.name='{app}-in', queue.name='{app}-q',"
    " routing.key='k', @map(type='json'))"
)
SINK = (
    "@sink(type='rabbitmq', uri='{uri}', exchange.name='{app}-out', exchange.type='topic',"
    " routing.key='n.{{n}}', headers=\"'a:b'\", @map(type='json', envelope='none'))"
)


def app(uri: str, *, source: bool = False, sink: bool = False) -> str:
    found = APP.replace("SOURCE", SOURCE if source else "").replace("SINK", SINK if sink else "")
    return found.replace("{uri}", uri)
