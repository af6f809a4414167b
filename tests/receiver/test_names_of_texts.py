"""Every name that a text can hold: each option of each connector and store has a row here.

The rows are compared with the declarations, so that a new connector, or a new option, fails until
it has one: what it names, or that it names nothing of this node and of the mesh.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from mesh.clock import SystemClock
from mesh.connect import registry
from mesh.connect.access import access_of
from mesh.connect.spec import Kind, Role, Spec
from mesh.control.retries import Retries
from mesh.plan import stores
from mesh.receiver.checking import bound_app, check_app
from mesh.receiver.environment import HostEnvironment
from mesh.settings import ReceiverSettings, SecretSettings, Settings
from tests.support.paths import ROOT
from tests.support.together import together

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Values that name what is closed; ``{root}`` is open, and has a key of the mesh.
FILES: Final = ("{root}/key", "/etc/passwd", "{root}/../outside", "file://{root}/key")
HOSTS: Final = ("127.0.0.1", "localhost", "169.254.169.254", "127.1", "0.0.0.0", "[::1]")
DATABASES: Final = (
    *(f"jdbc:sqlite:{file}" for file in FILES[:3]),
    *(f"jdbc:mysql://{host}/d" for host in HOSTS),
    *(f"jdbc:postgresql://{host}:5432/d" for host in HOSTS),
)
BINDS: Final = ("0.0.0.0:8280", "127.0.0.1:80", "192.0.2.1:8280")
STREAMS: Final = ("mesh-Victim-Ein", "mesh-Victim-errors-", "KV_mesh_apps", "mesh_journal")


def at(form: str, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(form.replace("*", one) for one in values)


HTTP: Final = at("http://*:8080/x", HOSTS)
#: Connector: the options that it needs, and by option the closed values.
ROWS: Final[dict[str, tuple[dict[str, str], dict[str, tuple[str, ...]]]]] = {
    "source inMemory": ({"topic": "t"}, {}),
    "sink inMemory": ({"topic": "t"}, {}),
    "source http": ({}, {"receiver.url": at("http://*/x", BINDS)}),
    "source http-service": ({"source.id": "s"}, {"receiver.url": at("http://*/x", BINDS)}),
    "source http-request": ({"source.id": "s"}, {"receiver.url": at("http://*/x", BINDS)}),
    "sink http-service-response": ({"source.id": "s", "message.id": "{{k}}"}, {}),
    "sink http-response": ({"source.id": "s", "message.id": "{{k}}"}, {}),
    "source http-call-response": ({"sink.id": "s"}, {}),
    "source http-response": ({"sink.id": "s"}, {}),
    **{
        f"sink {name}": (
            {"publisher.url": "http://192.0.2.1/x"} | ({"sink.id": "s"} if name != "http" else {}),
            {"publisher.url": HTTP, "token.url": HTTP, "proxy.host": HOSTS[:5]},
        )
        for name in ("http", "http-call", "http-request")
    },
    "source grpc": (
        {"receiver.url": "grpc://127.0.0.1:8280/p.A/B"},
        {"receiver.url": at("grpc://*/p.A/B", BINDS)},
    ),
    "source grpc-service": (
        {"source.id": "s", "receiver.url": "grpc://127.0.0.1:8280/p.A/B"},
        {"receiver.url": at("grpc://*/p.A/B", BINDS)},
    ),
    "source grpc-call-response": ({"sink.id": "s"}, {}),
    "sink grpc-service-response": ({"source.id": "s", "message.id": "{{k}}"}, {}),
    "sink grpc": (
        {"publisher.url": "grpc://192.0.2.1:80/p.A/B"},
        {"publisher.url": at("grpc://*:80/p.A/B", HOSTS)},
    ),
    "sink grpc-call": (
        {"publisher.url": "grpc://192.0.2.1:80/p.A/B", "sink.id": "s"},
        {"publisher.url": at("grpc://*:80/p.A/B", HOSTS)},
    ),
    "source file": (
        {"file.uri": "{root}/in"},
        {
            "file.uri": (*FILES, *at("ftp://*/x", HOSTS), *at("sftp://*/x", HOSTS)),
            "dir.uri": (*FILES[:3], *at("ftp://*/x", HOSTS)),
            "move.after.process": FILES,
            "move.after.failure": FILES,
        },
    ),
    "source prometheus": (
        {"target.url": "http://192.0.2.1/metrics", "metric.type": "gauge"}, {"target.url": HTTP}
    ),
    "source email": (
        {"username": "u", "password": "p", "host": "192.0.2.1"}, {"host": HOSTS[:5]}
    ),
    "source fileeventlistener": ({"dir.uri": "{root}"}, {}),
    "sink file": (
        {"file.uri": "{root}/out"},
        {"file.uri": (*FILES, *at("ftp://*/x", HOSTS), *at("sftp://*/x", HOSTS))},
    ),
    "source nats": (
        {"destination": "a"},
        {"stream": STREAMS, "server.urls": at("nats://*:4222", HOSTS), "destination": ("a",)},
    ),
    "sink nats": (
        {"destination": "a", "server.urls": "nats://192.0.2.1"},
        {"server.urls": at("nats://*:4222", HOSTS)},
    ),
    "sink log": ({}, {}),
    "source kafka": (
        {"bootstrap.servers": "192.0.2.1:9092", "topic.list": "t", "group.id": "g"},
        {
            "bootstrap.servers": at("*:9092", HOSTS),
            "optional.configuration": (
                *at("'ssl.ca.location:*'", FILES[:3]),
                *at("'sasl.oauthbearer.token.endpoint.url:http://*/x'", HOSTS),
            ),
        },
    ),
    "sink kafka": (
        {"bootstrap.servers": "192.0.2.1:9092", "topic": "t"},
        {
            "bootstrap.servers": at("*:9092", HOSTS),
            "optional.configuration": at("'ssl.ca.location:*'", FILES[:3]),
        },
    ),
    "source rabbitmq": (
        {"uri": "amqp://192.0.2.1", "exchange.name": "e"}, {"uri": at("amqp://u:p@*:5672/v", HOSTS)}
    ),
    "sink rabbitmq": (
        {"uri": "amqp://192.0.2.1", "exchange.name": "e"}, {"uri": at("amqps://*/v", HOSTS)}
    ),
    "source mqtt": ({"url": "tcp://192.0.2.1:1883", "topic": "t"}, {"url": at("tcp://*", HOSTS)}),
    "sink mqtt": ({"url": "tcp://192.0.2.1:1883", "topic": "t"}, {"url": at("ssl://*", HOSTS)}),
    "sink rdbms": (
        {"jdbc.url": "jdbc:sqlite:{root}/a.db", "table.name": "t"}, {"jdbc.url": DATABASES}
    ),
    "source cdc": (
        {"url": "jdbc:sqlite:{root}/a.db", "table.name": "t", "polling.column": "n",
         "mode": "polling"},
        {"url": DATABASES},
    ),
    "sink rdbms-call": (
        {"jdbc.url": "jdbc:sqlite:{root}/a.db", "sink.id": "s", "statement": "select 1",
         "columns": "a int"},
        {"jdbc.url": DATABASES},
    ),
    "source rdbms-call-response": ({"sink.id": "s"}, {}),
    "sink sse-server": ({}, {"server.url": at("http://*/x", BINDS)}),
    "sink websocket-server": ({"port": "8280"}, {"host": ("0.0.0.0", "192.0.2.1")}),
    "source websocket-server": ({"port": "8280"}, {"host": ("0.0.0.0", "192.0.2.1")}),
    "source syslog": ({"port": "8280"}, {"host": ("0.0.0.0", "192.0.2.1")}),
    "source sse": (
        {"event.source.url": "http://192.0.2.1/events"}, {"event.source.url": HTTP}
    ),
    "source websocket": ({"url": "ws://192.0.2.1/"}, {"url": at("ws://*:80/", HOSTS)}),
    "sink websocket": ({"url": "ws://192.0.2.1/"}, {"url": at("ws://*:80/", HOSTS)}),
    "source tcp": ({"port": "8280"}, {"host": ("0.0.0.0", "192.0.2.1")}),
    "sink tcp": ({"url": "tcp://192.0.2.1:9892/c"}, {"url": at("tcp://*:9892/c", HOSTS)}),
    "sink prometheus": (
        {"metric.type": "counter", "value.attribute": "n", "publish.mode": "pushgateway",
         "push.url": "http://192.0.2.1"},
        {"server.url": at("http://*", BINDS), "push.url": HTTP},
    ),
    "sink email": (
        {"address": "a@x", "host": "192.0.2.1", "subject": "s", "to": "b@x"}, {"host": HOSTS[:5]}
    ),
    "sink s3": (
        {"bucket.name": "b", "object.path": "o", "aws.access.key": "a", "aws.secret.key": "s"},
        {"endpoint": HTTP},
    ),
    "source mapper avro": ({"schema.id": "1"}, {"schema.registry": HTTP}),
    "sink mapper avro": ({"schema.id": "1"}, {"schema.registry": HTTP}),
}  # fmt: skip
#: Further values that a row's option needs beside it.
BESIDE: Final = {
    ("source file", "dir.uri"): {"file.uri": ""},
    ("source nats", "stream"): {"destination": ""},
    ("source file", "move.after.process"): {"mode": "text.full", "action.after.process": "move"},
    ("source file", "move.after.failure"): {"mode": "text.full", "action.after.failure": "move"},
    ("sink prometheus", "server.url"): {"publish.mode": "server"},
    **{
        (f"sink {name}", option): more
        for name in ("http", "http-call", "http-request")
        for option, more in (
            ("proxy.host", {"proxy.port": "3128"}),
            ("token.url", {"consumer.key": "k", "consumer.secret": "s"}),
        )
    },
}
#: Options that name things which are decided about elsewhere, with the tests.
ELSEWHERE: Final = {
    # Files of an event, when it is sent.
    ("sink email", "attachments"): "tests/receiver/test_email_sink.py",
    ("sink http-call", "download.path"): "tests/receiver/test_calls.py",
    ("sink http-request", "download.path"): "tests/receiver/test_calls.py",
    # Of the node, for the apps that it names.
    ("sink rdbms", "datasource"): "tests/store/test_sources.py",
    ("sink rdbms-call", "datasource"): "tests/store/test_sources.py",
    ("source cdc", "datasource.name"): "tests/store/test_sources.py",
    # Of the manager.
    ("source history", "path"): "tests/manager/test_backfill_inputs.py",
    # Of every app.
    ("source inMemory", "topic"): "tests/receiver/test_in_memory.py",
    ("sink inMemory", "topic"): "tests/receiver/test_in_memory.py",
}
#: Options that name nothing of the node and of the mesh: what the other side has, and texts.
LOGIN: Final = frozenset(
    {"username", "password", "token", "tls.store.password", "tls.truststore.password"}
)
_HTTP: Final = "basic.auth.username basic.auth.password"
_SINK: Final = (
    f"{_HTTP} method headers consumer.key consumer.secret body.consumer.key body.consumer.secret "
    "oauth.username oauth.password refresh.token oauth.scope proxy.username proxy.password"
)
_FORM: Final = "enclosing.element delimiter new.line.character namespaces"
INSIDE: Final = {
    "source http": f"{_HTTP} allow.origin",
    "source http-service": f"{_HTTP} allow.origin source.id",
    "source http-request": f"{_HTTP} allow.origin source.id",
    "sink http-service-response": "source.id message.id headers",
    "sink http-response": "source.id message.id headers",
    "sink http": _SINK,
    "sink http-call": f"{_SINK} sink.id",
    "sink http-request": f"{_SINK} sink.id",
    "source http-call-response": "sink.id http.status.code",
    "source http-response": "sink.id http.status.code",
    "source grpc-service": "source.id",
    "source grpc-call-response": "sink.id",
    "sink grpc-service-response": "source.id message.id headers",
    "sink grpc": "headers metadata sequence",
    "sink grpc-call": "headers metadata sequence sink.id",
    "source file": "file.name.pattern begin.regex end.regex cron.expression ssh.key.password",
    "source prometheus": "metric.name headers job instance grouping.key",
    "source email": "store folder search.term folder.to.move",
    "source fileeventlistener": "file.name.list",
    "sink file": "ssh.key.password",
    "source nats": "queue.group.name",
    "sink nats": "destination headers",
    "source history": "time until",
    "sink log": "prefix",
    "source kafka": "topic.list group.id partition.no.list topic.offsets.map",
    "sink kafka": "topic key partition.no sequence.id headers",
    "source rabbitmq": "exchange.name routing.key headers queue.name queue.args stream.position",
    "sink rabbitmq": "exchange.name routing.key headers message.id correlation.id reply.to "
    "content.type content.encoding user.id app.id timestamp",
    "source mqtt": "client.id topic",
    "sink mqtt": "client.id topic",
    "sink rdbms": "table.name field.length",
    "sink rdbms-call": "sink.id statement parameters columns",
    "source rdbms-call-response": "sink.id",
    "source cdc": "table.name operation polling.column cron.expression",
    "sink sse-server": "allow.origin",
    "sink websocket-server": "sub.protocol allow.origin",
    "source websocket": "sub.protocol headers",
    "source websocket-server": "sub.protocol allow.origin",
    "source sse": "method headers basic.auth.username basic.auth.password",
    "sink websocket": "sub.protocol headers",
    "source tcp": "context",
    "sink prometheus": "metric.name metric.help value.attribute buckets job grouping.key",
    "sink email": "address subject to cc bcc",
    "sink s3": "bucket.name object.path aws.access.key aws.secret.key aws.region content.type "
    "storage.class",
    "distribution strategy partitioned": "partitionKey",
    **{f"{side} mapper {kind}": _FORM for side in ("source", "sink")
       for kind in ("json", "csv", "text", "xml")},
    **{f"sink mapper {kind}": f"{_FORM} json.attributes"
       for kind in ("passThrough", "json", "keyvalue")},
    **{f"{side} mapper avro": "schema.def" for side in ("source", "sink")},
    **{f"{side} mapper protobuf": "proto message descriptor class" for side in ("source", "sink")},
}  # fmt: skip
#: Of ``@store``; ``tests/store/test_sources.py`` tries them.
STORES: Final = {
    "jdbc.url": "file or host", "url": "file or host",
    "datasource": "data source", "ref": "data source", "jndi.resource": "data source",
}  # fmt: skip
STORES_INSIDE: Final = frozenset(
    {
        "type", "username", "password", "jdbc.driver.name", "table.name", "field.length",
        "table.check.query", "pool.properties", "use.collation", "allow.null.values", "kept",
        "on.error", "isautocommit",
    }
)  # fmt: skip


def words_of(spec: Spec) -> Iterator[str]:
    """Names of the options whose values are any text, without files of the node."""
    for option in spec.options:
        is_text = option.kind in (Kind.TEXT, Kind.URL, Kind.PAIRS) and not option.choices
        if is_text and not (option.is_ignored or option.is_file or option.name == "ref"):
            yield option.name


def test_each_option_of_each_connector_has_a_row() -> None:
    missing, unknown = [], []
    for spec in registry.builtin_specs():
        connector = f"{spec.role} {spec.name}"
        given = set(ROWS.get(connector, ({}, {}))[1]) | set(INSIDE.get(connector, "").split())
        given |= {option for name, option in ELSEWHERE if name == connector}
        names = set(words_of(spec))
        missing += [f"{connector}: {name}" for name in names - given - LOGIN]
        unknown += [f"{connector}: {name}" for name in given - names if connector in ROWS]
    assert missing == []
    assert unknown == []
    assert all((ROOT / path).exists() for path in ELSEWHERE.values())


def test_each_source_and_sink_is_tried() -> None:
    opened = {
        f"{s.role} {s.name}" for s in registry.builtin_specs() if s.role in (Role.SOURCE, Role.SINK)
    }
    assert {name for name in ROWS if " mapper " not in name} == opened - {"source history"}


def test_each_option_of_a_store_has_a_row() -> None:
    assert set(STORES) | STORES_INSIDE == set(stores.RDBMS_OPTIONS)


class Client:
    """The host's connection: a service waits for answers before it binds its address."""

    async def subscribe(self, *_: Any, **__: Any) -> Client:
        return self

    async def unsubscribe(self) -> None:
        pass


@dataclass(frozen=True)
class Row:
    connector: str
    option: str
    values: tuple[str, ...]
    code: str = "MESH-C132"

    def __str__(self) -> str:
        return f"{self.connector} {self.option}"


def rows() -> Iterator[Row]:
    """A row for each option that names something of the node or of the mesh."""
    for connector, (_, closed) in ROWS.items():
        for option, values in closed.items():
            yield Row(connector, option, values, "MESH-C135" if option == "stream" else "MESH-C132")
    for spec in registry.builtin_specs():
        connector = f"{spec.role} {spec.name}"
        names = [one.name for one in spec.options if one.is_file] if connector in ROWS else []
        yield from (Row(connector, name, FILES[:3]) for name in names)
        if connector in ROWS and any(one.name == "ref" for one in spec.options):
            yield Row(connector, "ref", ("closed",), "MESH-C131")


def text_of(one: Row, value: str, root: Path) -> str:
    needed, _ = ROWS[one.connector]
    given = {**needed, **BESIDE.get((one.connector, one.option), {}), one.option: value}
    options = "".join(
        f', {name}="{value.replace("{root}", str(root))}"' for name, value in given.items() if value
    )
    kind, _, name = one.connector.rpartition(" ")
    if " mapper" in kind:
        side = kind.partition(" ")[0]
        connector = f"@{side}(type='inMemory', topic='t', @map(type='{name}'{options}))"
    else:
        form = "keyvalue" if name in ("prometheus", "rdbms", "cdc") else "json"
        form = "passThrough" if name in ("inMemory",) else form
        connector = f"@{kind}(type='{name}'{options}, @map(type='{form}'))"
    source, sink = (connector, "") if kind.startswith("source") else ("", connector)
    return (
        f"@App:name('Other') {source} define stream S (k string, n int); "
        f"{sink} define stream T (k string, n int); from S select k, n insert into T;"
    )


@pytest.mark.slow
@together("one", list(rows()), ids=str)
def test_what_is_closed_is_refused(one: Row, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir(exist_ok=True)
    (root / "key").write_text("key")
    settings = Settings(
        receiver=ReceiverSettings(file_roots=str(root)),
        secrets=SecretSettings(key_file=str(root / "key")),
    )
    client: Any = Client()
    environment = HostEnvironment(
        client, SystemClock(), "w1", access_of(settings), lambda: {"closed": {"apps": "Shop*"}},
        lambda: Retries(0.05, 0.2), lambda _: None,
    )  # fmt: skip
    for value in one.values:
        app = bound_app(text_of(one, value, root))
        (found,) = asyncio.run(check_app(app, environment, reads=()))
        assert one.code in found.problem, (value, found)
    assert sorted(path.name for path in root.iterdir()) == ["key"]
