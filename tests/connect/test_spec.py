"""Declarations of connectors: discovery, validation of options, and their description."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mesh.connect import registry
from mesh.connect.spec import Kind, Role, Spec, value_of
from mesh.errors import MeshError
from mesh.language.parser import parse
from mesh.plan.build import plan
from mesh.plan.notes import noted_options
from tests.support.together import together

HTTP = "@sink(type='http', publisher.url='http://h/x', @map(type='json'){})"


def refusal(annotation: str) -> MeshError:
    text = f"@App:name('A')\ndefine stream S (a int, k string);\n{annotation}\n"
    with pytest.raises(MeshError) as raised:
        plan(f"{text}define stream T (a int, k string);\nfrom S select a, k insert into T;")
    return raised.value


def test_declarations_import_no_client_library() -> None:
    code = "import sys, mesh.connect.registry as r; r.specs(); print(' '.join(sys.modules))"
    loaded = set(subprocess.check_output([sys.executable, "-c", code], text=True).split())
    assert not loaded & {
        "httpx", "uvicorn", "starlette", "nats", "pyspark", "pyarrow", "confluent_kafka",
        "aio_pika", "aiomqtt", "sqlalchemy", "websockets", "fastavro", "google.protobuf",
    }  # fmt: skip


@together("spec", registry.builtin_specs(), ids=lambda s: f"{s.role} {s.name}")
def test_every_default_is_valid_and_every_name_unique(spec: Spec) -> None:
    names = [n.lower() for o in spec.options for n in (o.name, *o.aliases)]
    assert len(names) == len(set(names))
    # A keyword in a name, as in max.in.flight, could not be written.
    for name in names:
        parse(
            f"@sink(type='x', {name}='v') define stream S (a int); from S select a insert into T;"
        )
    written = {Kind.NUMBER: "1"}
    required = {o.name: written.get(o.kind, "x://y") for o in spec.options if o.is_required}
    spec.values(required)


@pytest.mark.parametrize(
    ("annotation", "code", "message", "hint"),
    [
        (
            "@sink(type='http', publisher.urls='http://h/x', @map(type='json'))",
            "MESH-P230", 'sink "http" has no option "publisher.urls"', "publisher.url",
        ),
        (
            "@sink(type='http', @map(type='json'))",
            "MESH-P231", 'sink "http" needs the option "publisher.url"', "Address.",
        ),
        (
            "@sink(type='http', publisher.url='h', @map(type='json'))",
            "MESH-P232",
            'option "publisher.url" of sink "http" is a URL such as http://host:8080/path, not "h"',
            "Address.",
        ),
        (
            "@sink(type='http', publisher.url='http://h/{{z}}', @map(type='json'))",
            "MESH-P232",
            'option "publisher.url" of sink "http" names attribute "z",',
            "Address.",
        ),
        (
            "@source(type='nats', server.urls='nats://h:4222', @map(type='json'))",
            "MESH-P231", 'source "nats" needs one of the options "stream" and "destination"', "",
        ),
        (
            "@sink(type='jms', destination='t', @map(type='json'))",
            "MESH-P900", 'not supported yet: sink "jms"', "use mqtt",
        ),
        (
            "@sink(type='log', @map(type='hl7'))",
            "MESH-P900", 'not supported yet: sink mapper "hl7"', "Use text with @payload.",
        ),
        (
            HTTP.format(
                ", @distribution(strategy='partitioned', partitionKey='k', "
                "@destination(publisher.url='http://a/'), @destination(publisher.uri='x'))"
            ),
            "MESH-P230",
            'sink "http" of destination 2 has no option "publisher.uri"', "publisher.url",
        ),
    ],
)  # fmt: skip
def test_options_are_checked_where_they_are_written(
    annotation: str, code: str, message: str, hint: str
) -> None:
    error = refusal(annotation)
    assert error.code == code
    assert error.message.startswith(message)
    assert hint in (error.hint or "")
    assert error.position is not None
    assert error.position.line == 3


def test_a_secret_is_not_in_a_message() -> None:
    spec = registry.find(Role.SINK, "nats")
    assert spec is not None
    secrets = {"username", "password", "token", "tls.store.password", "tls.truststore.password"}
    assert {o.name for o in spec.options if o.is_secret} == secrets


@pytest.mark.parametrize(
    ("connector", "why"),
    [
        ("sink(type='email', username='u', host='h', subject='s', to='t@x'", "needs address"),
        ("source(type='file', file.uri='/f', tailing='true', action.after.process='delete'",
         "needs tailing='false': a file that is followed"),
        ("source(type='cdc', url='jdbc:sqlite:d', table.name='t', operation='insert'",
         "'listening' is for PostgreSQL"),
        ("source(type='cdc', url='jdbc:mysql://h/d', table.name='t', mode='polling'",
         "needs polling.column"),
        ("source(type='cdc', table.name='t'", "needs url, or datasource.name"),
        ("sink(type='rdbms', table.name='t'", "needs jdbc.url, or datasource"),
        ("source(type='file', file.uri='smb://h/f'", "mount it, and write its path"),
        ("sink(type='http-call', sink.id='s', publisher.url='http://h', downloading.enabled='TRUE'",
         "needs download.path"),
        ("source(type='http', basic.auth.enabled='true'",
         "needs basic.auth.username and basic.auth.password"),
        ("source(type='http', receiver.url='ftp://127.0.0.1:8280/r'", "and not ftp://"),
        ("source(type='http', receiver.url='https://127.0.0.1:8280/r'", "needs a certificate"),
        ("source(type='cdc', url='jdbc:mysql://h/d', table.name='t', operation='insrt'",
         "operation is a list of insert, update and delete"),
        ("sink(type='nats', destination='orders.*'", "without wildcards"),
        ("sink(type='nats', destination='orders.{{n}}.'", "without wildcards"),
        ("source(type='file', dir.uri='/in', file.uri='/in/a'", "has both options"),
        ("source(type='file', dir.uri='/in', tailing='false', cron.expression='* * *'",
         "is no cron expression"),
        (("source(type='http-service', source.id='s', basic.auth.enabled='TRUE', "
          "basic.auth.username='u'"),
         "needs basic.auth.username and basic.auth.password"),
        ("source(type='http', basic.auth.username='u', basic.auth.password='p'",
         "basic.auth.password has no effect without basic.auth.enabled"),
        ("sink(type='http', publisher.url='http://h/', basic.auth.enabled='true'",
         "needs basic.auth.username"),
        ("sink(type='http-call', sink.id='s', publisher.url='http://h/', basic.auth.password='p'",
         "basic.auth.password needs basic.auth.username"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together_are_refused(connector: str, why: str) -> None:
    text = f"""@App:name('P')
    @{connector}, @map(type='keyvalue'))
    define stream S (n int);
    define stream T (n int);
    from S select n insert into T;"""
    with pytest.raises(MeshError, match=why) as raised:
        plan(text)
    assert raised.value.position is not None


@pytest.mark.parametrize(
    ("connector", "note"),
    [
        ("source(type='file', file.uri='/f', tailing='true', action.after.process='NONE'", ""),
        ("source(type='nats', destination='d', cluster.id='c', server.id='s', client.id='x'",
         'cluster.id, server.id of source nats of stream "S": NATS Streaming has ended'),
        ("sink(type='nats', destination='d', cluster.id='c'",
         'cluster.id of sink nats of stream "S": NATS Streaming has ended'),
        ("sink(type='http', publisher.url='http://h', headers=\"'a:b', 'c:d'\", blocking.io='true'",
         "blocking.io of sink http of stream \"S\": requests are sent one after the other"),
        ("sink(type='http', publisher.url='http://h/', client.bootstrap.socket.reuse='true'", ""),
        ("sink(type='http', publisher.url='http://h/', basic.auth.enabled='false'", ""),
        ("source(type='http', basic.auth.enabled='true', ref='logins'", ""),
        ("source(type='http', receiver.url='https://h:1/', Keystore.file='/k'", ""),
        ("source(type='http', receiver.url='HTTPS://h:1/', ref='tls'", ""),
        ("source(type='http', basic.auth.enabled='false', basic.auth.username='u'", ""),
        ("source(type='kafka', topic='t', bootstrap.servers='h', group.id='g'", ""),
        ("source(type='inMemory'", ""),
        ("sink(type='email', username='u@x', host='h', subject='s', to='t@x'", ""),
    ],
)  # fmt: skip
def test_options_of_the_original_are_accepted_with_a_note(connector: str, note: str) -> None:
    text = f"""@App:name('P')
    @{connector}, @map(type='text'))
    define stream S (n int);
    define stream T (n int);
    from {"S" if connector.startswith("source") else "T"} select n insert into
    {"T" if connector.startswith("source") else "S"};"""
    found = noted_options(plan(text).bound)
    assert [one[: len(note)] for one in found] == ([note] if note else [])


@pytest.mark.parametrize(
    ("connector", "why", "near"),
    [
        ("source(type='http', receiver.url='http://127.0.0.1:99999/r'", "is a URL such as", "Addr"),
        ("sink(type='http', publisher.url='http://h:x/'", "is a URL such as", "Address."),
        ("source(type='file', dir.uri='/in', mode='text.ful'", "is one of", '"text.full"'),
        ("sink(type='nats', destination='a.{{regoin}}'", 'names attribute "regoin"', '"region"'),
    ],
)
def test_a_wrong_value_has_the_nearest_one(connector: str, why: str, near: str) -> None:
    text = f"""@App:name('P')
    @{connector}, @map(type='json'))
    define stream S (region string);
    define stream T (region string);
    from {"S" if connector.startswith("source") else "T"} select region insert into
    {"T" if connector.startswith("source") else "S"};"""
    with pytest.raises(MeshError, match=why) as raised:
        plan(text)
    assert (raised.value.code, raised.value.position is not None) == ("MESH-P232", True)
    assert near in str(raised.value.hint)


def test_a_note_of_a_mapper_is_told_as_well() -> None:
    text = """@App:name('P')
    @source(type='inMemory', @map(type='xml', enclosing.element='/r/c',
            enable.streaming.xml.content='true', @attributes(n='/c/@n')))
    define stream S (n int);
    define stream T (n int);
    from S select n insert into T;"""
    (note,) = noted_options(plan(text).bound)
    assert note.startswith(
        'enable.streaming.xml.content of mapper xml of source inMemory of stream "S": each payload'
    )


@pytest.mark.parametrize(
    ("connector", "path", "why"),
    [
        ("type='kafka', bootstrap.servers='h', topic.list='t', group.id='g'", "trp:offSet", ""),
        ("type='mqtt', url='tcp://h', topic='t'", "trp:check.sum",
         'source "mqtt" has no property "check.sum"'),
        ("type='inMemory', topic='t'", "trp:anything", ""),
        ("type='mqtt', url='tcp://h', topic='t'", "trp:topics", 'Did you mean "topic"'),
    ],
)  # fmt: skip
def test_properties_that_a_source_does_not_give_are_refused(
    connector: str, path: str, why: str
) -> None:
    text = f"""@App:name('P')
    @source({connector}, @map(type='json', @attributes(k='{path}', n='$.n')))
    define stream S (k string, n int);
    define stream T (n int);
    from S select n insert into T;"""
    if not why:
        plan(text)
        return
    with pytest.raises(MeshError) as raised:
        plan(text)
    assert why in f"{raised.value} {raised.value.hint}"


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.DURATION, "10 sec", 10_000),
        (Kind.DURATION, "250", 250),
        (Kind.SECONDS, "5", 5000),
        (Kind.SECONDS, "5 ms", 5),
        (Kind.SIZE, "1 MB", 1 << 20),
        (Kind.SWITCH, "TRUE", True),
        (Kind.PAIRS, "'a:b','c:d:e'", [("a", "b"), ("c", "d:e")]),
    ],
)
def test_values_of_options(kind: Kind, text: str, value: object) -> None:
    assert value_of(kind, text) == value
