"""Mappers and sinks that fail where none should: one payload, event or destination is affected."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mesh.connect.contract import NodeAccess
from mesh.plan import connectors
from mesh.receiver import opened
from mesh.receiver.types.file_sink import FileSink
from tests.support.connectors import staged

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

APP = """@App:name('Doors')
@source(type='http', receiver.url='http://127.0.0.1:0/in', @map(type='json'))
define stream S (k string);
@source(type='file', dir.uri='{0}/in', file.polling.interval='20', @map(type='csv'))
define stream F (k string);
@sink(type='file', file.uri='{0}/out', @map(type='csv'))
define stream T (k string);
from S select k insert into T;
from F select k insert into T;
"""


class Failing:
    """A mapper that fails wherever the word is."""

    def __init__(self, honest: Any) -> None:
        self._honest = honest

    def __getattr__(self, name: str) -> Any:
        return getattr(self._honest, name)

    def decode(self, payloads: Sequence[bytes], properties: Any = None) -> Any:
        if any(b"boom" in one for one in payloads):
            raise KeyError("what nobody thought of")
        return self._honest.decode(payloads, properties)

    def encode(self, rows: pa.RecordBatch) -> Any:
        if "boom" in rows.column(0).to_pylist():
            raise KeyError("what nobody thought of")
        return self._honest.encode(rows)


@pytest.fixture(autouse=True)
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """All mappers of the host fail at the word."""
    monkeypatch.setattr(
        opened, "make_mapper", lambda *given: Failing(connectors.make_mapper(*given))
    )


async def test_a_request_at_which_a_mapper_fails_is_refused_alone(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    text = APP.format(tmp_path)
    async with staged(nats_server, text) as stage, httpx.AsyncClient() as client:
        running = stage.start("receiver-S")
        url = (await stage.until_running(running)).connectors[0].endpoint
        bodies = [b'{"event":{"k":"%s"}}' % word for word in (b"a", b"boom", b"b", b"boom")]
        answers = await asyncio.gather(*(client.post(url, content=one) for one in bodies))
        assert [one.status_code for one in answers] == [200, 400, 200, 400]
        assert "KeyError" in answers[1].json()["reason"]
        assert sorted(event["k"] for event in await stage.events("S")) == ["a", "b"]


async def test_a_line_at_which_a_mapper_fails_is_recorded_alone(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1").write_text("a\nboom\nb\n")
    access = NodeAccess(file_roots=(str(tmp_path),))
    async with staged(nats_server, APP.format(tmp_path), access) as stage:
        stage.start("receiver-F")
        (entry,) = await stage.until("the error", stage.errors)
        assert "KeyError" in entry["reason"]

        async def read() -> bool:
            return [event["k"] for event in await stage.events("F")] == ["a", "b"]

        await stage.until("the others", read)


async def test_an_event_at_which_a_mapper_fails_is_recorded_alone(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    access = NodeAccess(file_roots=(str(tmp_path),))
    async with staged(nats_server, APP.format(tmp_path), access) as stage:
        await stage.publish("T", {"k": "a"}, {"k": "boom"}, {"k": "b"})
        stage.start("sink-T")
        (entry,) = await stage.until("the error", stage.errors)
        assert "KeyError" in entry["reason"]
        out = tmp_path / "out"
        await stage.until("the others", lambda: out.exists() and out.read_text() == "a\nb\n")


async def test_a_destination_that_fails_at_its_end_ends_no_other(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"""@App:name('Doors')
    define stream S (k string);
    @sink(type='file', @map(type='csv'), @distribution(strategy='broadcast',
        @destination(file.uri='{tmp_path}/a'), @destination(file.uri='{tmp_path}/b')))
    define stream T (k string);
    from S select k insert into T;
    """
    honest, ending, failures = FileSink.open, FileSink.close, [OSError("away")] * 2

    async def open_(sink: FileSink, context: Any, state: Any) -> None:
        await honest(sink, context, state)
        if failures:
            raise failures.pop()

    async def close(sink: FileSink) -> None:
        await ending(sink)
        raise KeyError("what nobody thought of")

    monkeypatch.setattr(FileSink, "open", open_)
    monkeypatch.setattr(FileSink, "close", close)
    access = NodeAccess(file_roots=(str(tmp_path),))
    async with staged(nats_server, text, access) as stage:
        await stage.publish("T", {"k": "x"}, {"k": "y"})
        stage.start("sink-T")
        outs = [tmp_path / "a", tmp_path / "b"]
        await stage.until(
            "all", lambda: all(one.exists() and one.read_text() == "x\ny\n" for one in outs)
        )
        assert stage.reports[-1].restarts == 0
