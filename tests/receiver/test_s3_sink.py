"""Objects to a store with the interface of S3."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import boto3  # type: ignore[import-untyped]  # without types
import pytest
from moto.server import ThreadedMotoServer

from mesh.connect.contract import Record
from mesh.receiver.types.s3_sink import name_of
from mesh.testing.connectors import ConnectorScenario, Stage, conform
from tests.support.connectors import staged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

APP = """@App:name('{app}')
define stream S (k string, n int);
SINK define stream T (k string, n int);
from S select k, n insert into T;
"""


@pytest.fixture(scope="module")
def objects() -> Iterator[Any]:
    """A client of an object store, with one bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client(
        "s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1",
        aws_access_key_id="a", aws_secret_access_key="b",
    )  # fmt: skip
    client.create_bucket(Bucket="mesh")
    yield client
    client.close()
    server.stop()


@pytest.mark.slow
@pytest.mark.nats
async def test_an_object_is_stored_for_each_event(nats_server: NatsServer, objects: Any) -> None:
    text = s3_app(objects).replace("{app}", "Objects")
    async with staged(nats_server, text) as stage:
        await stage.publish("T", {"k": "x", "n": 1}, {"k": "y", "n": 2})
        stage.start("sink-T")

        async def both() -> bool:
            return await asyncio.to_thread(numbers, objects, "Objects/") == [1, 2]

        await stage.until("both objects", both)


def s3_app(objects: Any) -> str:
    """An app that stores objects below its name and the key."""
    return APP.replace(
        "SINK",
        f"@sink(type='s3', bucket.name='mesh', object.path='{{app}}/{{{{k}}}}/', endpoint="
        f"'{objects.meta.endpoint_url}', aws.access.key='a', aws.secret.key='b',"
        " @map(type='json', envelope='none'))",
    )


def numbers(objects: Any, prefix: str) -> list[int]:
    """The numbers in the objects below a prefix, in the order of names."""
    listed = objects.list_objects_v2(Bucket="mesh", Prefix=prefix).get("Contents", ())
    bodies = [objects.get_object(Bucket="mesh", Key=one["Key"])["Body"] for one in listed]
    return [json.loads(body.read())["n"] for body in bodies]


@pytest.mark.nats
@pytest.mark.extended
def test_objects_are_stored_exactly_once(
    nats_server: NatsServer, objects: Any, tmp_path: Path
) -> None:
    async def send(stage: Stage) -> None:
        await stage.publish("T", {"k": "x", "n": 1}, {"k": "y", "n": 2})
        await stage.publish("T", {"k": "x", "n": 3})

    async def stored(stage: Stage) -> list[Any]:
        return await asyncio.to_thread(numbers, objects, f"{stage.spec.name}/")

    use = ConnectorScenario(s3_app(objects), "sink-T", send, stored, lambda found: len(found) >= 3)
    moments = asyncio.run(conform(nats_server.url, use, tmp_path))
    assert "after write" in moments


def test_names_of_objects_are_in_the_order_of_events() -> None:
    assert name_of("a/b.json", Record("x/y/z/7.1", b"")) == "a/b.json"
    names = [name_of("a/", Record(f"x/y/z/{at}", b"")) for at in ("9.0", "10.0", "10.2")]
    assert names == sorted(names)
