"""The conformance kit on our connectors: exact where the declaration says so."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mesh.model.cluster import InstanceState
from mesh.receiver.types.in_memory import subject_of
from mesh.testing.connectors import ConnectorScenario, Stage, conform
from tests.support.connectors import Endpoint

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

APP = """@App:name('{app}')
SOURCE define stream S (n int);
SINK define stream T (n int);
from S select n insert into T;
"""
ROWS = [{"n": n} for n in range(5)]


async def publish(stage: Stage) -> None:
    await stage.publish("T", *ROWS[:2])
    await stage.publish("T", *ROWS[2:])


async def test_a_file_is_written_exactly_once(nats_server: NatsServer, tmp_path: Path) -> None:
    text = APP.replace("SOURCE", "").replace(
        "SINK", "@sink(type='file', file.uri='{directory}/out', @map(type='csv'))"
    )

    async def written(stage: Stage) -> str:
        path = tmp_path / f"run{stage.spec.name.removeprefix('Run')}" / "out"
        return path.read_text() if path.exists() else ""

    whole = "0\n1\n2\n3\n4\n"
    use = ConnectorScenario(
        text, "sink-T", publish, written, lambda found: len(found) >= len(whole)
    )
    moments = await conform(nats_server.url, use, tmp_path)
    assert {"before write", "after write", "after store a position"} <= set(moments)


@pytest.mark.slow
async def test_a_file_is_read_exactly_once(nats_server: NatsServer, tmp_path: Path) -> None:
    text = APP.replace("SINK", "").replace(
        "SOURCE",
        "@source(type='file', dir.uri='{directory}', file.polling.interval='20', @map(type='csv'))",
    )

    async def write(stage: Stage) -> None:
        own = tmp_path / f"run{stage.spec.name.removeprefix('Run')}"
        (own / "a.csv").write_text("0\n1\nx\n")
        (own / "b.csv").write_text("2\n3\n4\n")

    async def stored(stage: Stage) -> Any:
        bad = [entry["data"] for entry in await stage.errors()]
        return [row["n"] for row in await stage.events("S")], bad

    use = ConnectorScenario(
        text, "receiver-S", write, stored, lambda found: len(found[0]) + len(found[1]) >= 6
    )
    moments = await conform(nats_server.url, use, tmp_path)
    steps = {"read", "publish", "store a position", "committed", "publish with an ack"}
    assert {f"{when} {step}" for when in ("before", "after") for step in steps} <= set(moments)


@pytest.mark.slow
async def test_requests_with_a_key_are_stored_once(nats_server: NatsServer, tmp_path: Path) -> None:
    text = APP.replace("SINK", "").replace(
        "SOURCE", "@source(type='http', receiver.url='http://127.0.0.1:0/in', @map(type='json'))"
    )

    async def post(stage: Stage) -> None:
        async with httpx.AsyncClient() as client:
            for row in ROWS[:3]:
                await stage.until("an answer", partial(posted, stage, client, row))

    async def posted(stage: Stage, client: httpx.AsyncClient, row: dict[str, int]) -> bool:
        connectors = [d for r in stage.reports[-1:] for d in r.connectors]
        running = [d for d in connectors if d.state is InstanceState.RUNNING]
        try:
            answer = await client.post(
                running[0].endpoint, json={"event": row}, headers={"Idempotency-Key": f"{row['n']}"}
            )
        except (IndexError, httpx.HTTPError):
            return False
        return answer.status_code == 200

    async def stored(stage: Stage) -> Any:
        return [row["n"] for row in await stage.events("S")]

    use = ConnectorScenario(text, "receiver-S", post, stored, lambda found: len(found) >= 3)
    moments = await conform(nats_server.url, use, tmp_path)
    assert {"before publish", "after publish"} <= set(moments)


@pytest.mark.extended
async def test_a_jetstream_stream_of_others_is_read_exactly_once(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    text = APP.replace("SINK", "").replace(
        "SOURCE",
        f"@source(type='nats', server.urls='{nats_server.url}', stream='O{{app}}', "
        "destination='o.{app}.*', @map(type='csv'))",
    )

    async def send(stage: Stage) -> None:
        name = stage.spec.name
        await stage.js.add_stream(name=f"O{name}", subjects=[f"o.{name}.>"])
        for number, data in enumerate((b"0", b"1", b"x", b"2", b"3")):
            await stage.js.publish(f"o.{name}.{number}", data)
        await stage.js.publish(f"o.{name}.4.other", b"9")
        await stage.js.publish(f"o.{name}.5", b"4")

    async def stored(stage: Stage) -> Any:
        bad = [entry["data"] for entry in await stage.errors()]
        return [row["n"] for row in await stage.events("S")], bad

    use = ConnectorScenario(
        text, "receiver-S", send, stored, lambda found: len(found[0]) + len(found[1]) >= 6
    )
    moments = await conform(nats_server.url, use, tmp_path)
    steps = {"read", "publish", "store a position", "committed"}
    assert {f"{when} {step}" for when in ("before", "after") for step in steps} <= set(moments)


@pytest.mark.extended
async def test_a_topic_is_read_exactly_once(nats_server: NatsServer, tmp_path: Path) -> None:
    text = APP.replace("SINK", "").replace(
        "SOURCE", "@source(type='inMemory', topic='from {app}', @map(type='json'))"
    )

    async def send(stage: Stage) -> None:
        # A topic begins where its first source has stored its position.
        def begun() -> bool:
            return any(
                r.events_out == 0 and r.state is InstanceState.RUNNING for r in stage.reports
            )

        await stage.until("a source", begun)
        js_stream = f"mesh-{stage.spec.name}-S"
        subject = f"mesh._marker.{js_stream}.receiver-S-source"

        async def has_begun() -> bool:
            found = [json.loads(one) for one in await stage.messages(js_stream, subject)]
            return any(one["source"] for one in found)

        await stage.until("its position", has_begun)
        for row in ROWS:
            await stage.js.publish(subject_of(f"from {stage.spec.name}"), json.dumps(row).encode())

    async def stored(stage: Stage) -> Any:
        return [row["n"] for row in await stage.events("S")]

    use = ConnectorScenario(text, "receiver-S", send, stored, lambda found: len(found) >= 5)
    moments = await conform(nats_server.url, use, tmp_path)
    assert {"after read", "after publish", "after store a position"} <= set(moments)


@pytest.mark.extended
async def test_requests_of_a_sink_are_repeated_with_their_key_only(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    end = Endpoint()
    await end.open()
    try:
        text = APP.replace("SOURCE", "").replace(
            "SINK", f"@sink(type='http', publisher.url='{end.url}', @map(type='json'))"
        )

        async def arrived(stage: Stage) -> list[int]:
            name = f"{stage.spec.name}/"
            pairs = zip(end.keys, end.bodies, strict=True)
            return [body["event"]["n"] for key, body in pairs if key.startswith(name)]

        use = ConnectorScenario(text, "sink-T", publish, arrived, lambda found: len(found) >= 5)
        assert await conform(nats_server.url, use, tmp_path)
    finally:
        await end.close()


async def test_the_kit_finds_a_sink_that_doubles(nats_server: NatsServer, tmp_path: Path) -> None:
    end = Endpoint()
    await end.open()
    try:
        text = APP.replace("SOURCE", "").replace(
            "SINK", f"@sink(type='http', publisher.url='{end.url}', @map(type='json'))"
        )

        async def requests(stage: Stage) -> int:
            name = f"{stage.spec.name}/"
            return sum(head["idempotency-key"].startswith(name) for head in end.heads)

        use = ConnectorScenario(text, "sink-T", publish, requests, lambda found: found >= 5)
        with pytest.raises(AssertionError, match="killed"):
            await conform(nats_server.url, use, tmp_path)
    finally:
        await end.close()
