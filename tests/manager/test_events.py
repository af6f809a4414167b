"""Failed events and events for a test, through a manager on a real server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import nats
import orjson
import pytest

from mesh.control.cluster_state import cluster_state_of
from mesh.control.journal import JournalEntry
from mesh.errors import MeshError
from mesh.jetstream import journal
from mesh.manager import service as service_module
from mesh.manager.manager import running
from mesh.model import names
from mesh.model.error_entry import SimulatedEvent
from mesh.settings import ManagerSettings, NatsSettings, Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.js import JetStreamContext

    from mesh.jetstream.server import NatsServer
    from mesh.manager.manager import Manager
    from mesh.manager.service import ManagerService

APP = "@App:name('A') define stream S (a int, b string); from S[a > 1] select a insert into T;"


@asynccontextmanager
async def managed(
    nats_server: NatsServer,
) -> AsyncIterator[tuple[Manager, ManagerService, JetStreamContext]]:
    """A manager that has the app deployed; no instance runs."""
    settings = Settings(nats=NatsSettings(url=nats_server.url), manager=ManagerSettings(id="m1"))
    async with running(settings) as (manager, service):
        await service.deploy(APP)
        client = await nats.connect(nats_server.url)
        try:
            yield manager, service, client.jetstream()
        finally:
            await client.close()


async def fail(js: JetStreamContext, **entry: Any) -> int:
    """An entry as our sinks write them; its id."""
    values = {"stream": "S", "sequence": 1, "index": 0, "time_ms": 5, "reason": "bad", **entry}
    return (await js.publish(names.error_subject("A"), orjson.dumps(values))).seq


async def sent(js: JetStreamContext) -> list[tuple[Any, str | None]]:
    """The events sent to stream S, each with its own time."""
    stream = names.js_stream("A", "S")
    count = (await js.stream_info(stream)).state.last_seq
    found = [await js.get_msg(stream, number) for number in range(1, count + 1)]
    return [
        (orjson.loads(m.data or b""), (m.headers or {}).get(names.EVENT_TIME_HEADER)) for m in found
    ]


async def test_failed_events_are_replayed_where_they_were_meant_to_go(
    nats_server: NatsServer,
) -> None:
    async with managed(nats_server) as (manager, service, js):
        events = service.events
        first = await fail(js, data='{"a": 2, "b": 7}', event_time_ms=1234)
        # A marker of a sink is among the entries.
        await js.publish(f"{names.marker_subject(names.error_js_stream('A'))}.x", b"{}")
        second = await fail(js, data='[{"a": 3}, {"a": 4}]', index=1)
        third = await fail(js, data_base64="AAAA")
        assert await events.failed_count("A") == 3
        assert [e["id"] for e in await events.failed("A", 2)] == [second, third]
        assert [e["id"] for e in await events.failed("A", 2, second)] == [first]

        done = await events.replay("A", [first, second])
        assert (done.ids, done.left) == ((first, second), 1)
        assert await sent(js) == [({"a": 2, "b": 7}, "1234"), ({"a": 4}, None)]

        with pytest.raises(MeshError) as refused:
            await events.replay("A", None)
        assert refused.value.code == "MESH-A422"
        await events.replay("A", [third], b'{"a": 9, "b": "x"}', by="ada")
        assert (await sent(js))[2:] == [({"a": 9, "b": "x"}, None)]
        with pytest.raises(MeshError) as refused:
            await events.replay("A", [third])
        assert refused.value.code == "MESH-A404"
        await manager.journal.stored()
        story = [(e.by, e.text) for e in await service.story("A") if "replayed" in e.text]
        assert story[-1] == ("user ada", f"replayed 1 failed events ({third})")


async def test_failed_events_are_discarded_one_by_one_by_age_and_all(
    nats_server: NatsServer,
) -> None:
    async with managed(nats_server) as (_, service, js):
        events = service.events
        ids = [await fail(js, data=str(n)) for n in range(5)]
        entries = await events.failed("A", 5)
        events._now_ms = lambda: 0
        assert await events.discard_older("A", 60) == 0
        assert await events.failed("A", 5) == entries
        assert (await events.discard("A", [ids[1], 999])).ids == (ids[1],)
        del entries[1]
        # As old as the last but one, by the reader's clock: earlier ones are deleted.
        old_ms = entries[2]["recorded_at_ms"]
        events._now_ms = lambda: old_ms + 60_000
        older = [e["id"] for e in entries if e["recorded_at_ms"] < old_ms]
        newer = [e["id"] for e in entries if e["recorded_at_ms"] >= old_ms]
        assert await events.discard_older("A", 60) == len(older)
        assert [e["id"] for e in await events.failed("A", 9)] == newer
        assert (await events.discard("A", None)).left == 0


async def test_a_list_skips_gaps_without_asking_for_each_sequence(nats_server: NatsServer) -> None:
    async with managed(nats_server) as (manager, service, js):
        client = manager.client
        marker = f"{names.marker_subject(names.error_js_stream('A'))}.x"
        ids = []
        for gap in (0, 1, 40, 3000):
            for _ in range(gap):
                await client.publish(marker, b"{}")
            await client.flush()
            ids += [await fail(js, data=str(gap)), await fail(js, data=str(gap))]
        calls = 0
        real = service.events._js.get_msg

        async def counted(*arguments: Any, **more: Any) -> Any:
            nonlocal calls
            # The manager reads records meanwhile, the more of them the longer this takes.
            calls += arguments[0] == names.error_js_stream("A")
            return await real(*arguments, **more)

        service.events._js.get_msg = counted  # type: ignore[method-assign]
        for limit in (1, 2, 3, 5, 7, 8, 20):
            listed = await service.events.failed("A", limit)
            assert [e["id"] for e in listed] == ids[-limit:]
        assert [e["id"] for e in await service.events.failed("A", 20, ids[6])] == ids[:6]
        assert await service.events.failed("A", 0) == []
        assert calls < 300


@pytest.mark.parametrize(
    ("payload", "listed"),
    [
        (b"no json", {"stream": "", "reason": "it is no entry of mesh", "data": "no json"}),
        (b"[1]", {"stream": "", "reason": "it is no entry of mesh", "data": "[1]"}),
        (b'{"id": 1, "recorded_at_ms": 0, "stream": 5, "index": "x", "event_time_ms": "1\\r\\nX:"}',
         {"stream": ""}),
        (b'{"stream": "Other.>", "data": "{}"}', {"stream": "Other.>", "data": "{}"}),
    ],
)  # fmt: skip
async def test_what_another_publisher_wrote_is_listed_and_not_replayed(
    nats_server: NatsServer, payload: bytes, listed: dict[str, Any]
) -> None:
    async with managed(nats_server) as (_, service, js):
        first = await fail(js, data="{}")
        id_ = (await js.publish(names.error_subject("A"), payload)).seq
        _, entry = await service.events.failed("A", 2)
        assert entry.pop("recorded_at_ms") > 0
        assert entry == {**listed, "id": id_}
        with pytest.raises(MeshError, match="MESH-A422"):
            await service.events.replay("A", [id_], b"{}")
        assert await sent(js) == []
        assert (await service.events.replay("A", [first])).left == 1


async def test_requests_that_wait_are_bounded(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    surveys = 0
    real = cluster_state_of

    def counted(*arguments: Any) -> Any:
        nonlocal surveys
        surveys += 1
        return real(*arguments)

    monkeypatch.setattr(service_module, "cluster_state_of", counted)

    async with managed(nats_server) as (manager, service, _):
        waits = [
            asyncio.create_task(service.wait_running("A", 60.0))
            for _ in range(service_module.WAITS_MAX)
        ]
        surveys, version = 0, manager.view.version
        await manager.view.changed(version, 5.0)
        with pytest.raises(MeshError, match="MESH-A429"):
            await service.wait_running("A", 60.0)
        # One survey for all that wait, at each change of the view.
        assert surveys <= manager.view.version - version + 2
        for one in waits:
            one.cancel()
        await asyncio.wait(waits)
        assert (await service.wait_running("A", 0.0)).app == "A"
        stories = await asyncio.gather(
            *(service.story("A") for _ in range(service_module.STORIES_MAX + 2)),
            return_exceptions=True,
        )
        refused = [one for one in stories if isinstance(one, MeshError)]
        assert [one.code for one in refused] == ["MESH-A429"] * 2


async def test_a_story_has_the_last_entries(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "READ_MAX", 3)

    async with managed(nats_server) as (manager, service, _):
        # An app of its own: the leader writes to the story of A meanwhile.
        for number in range(6):
            manager.journal.note(JournalEntry(f"entry {number}", app="Gone"))
        await manager.journal.stored()
        told = [one.text for one in await service.story("Gone")]
        assert told == ["entry 3", "entry 4", "entry 5"]


async def test_events_for_a_test_fit_their_stream_or_none_is_sent(nats_server: NatsServer) -> None:
    async with managed(nats_server) as (_, service, js):
        events = service.events
        good = SimulatedEvent("S", [2, "x"], 77), SimulatedEvent("S", {"b": "y", "a": 3})
        assert await events.send("A", good) == 2
        assert await sent(js) == [({"a": 2, "b": "x"}, "77"), ({"b": "y", "a": 3}, None)]
        for bad, code in (
            (SimulatedEvent("S", [2]), "MESH-A400"),
            (SimulatedEvent("S", {"a": 1}), "MESH-A400"),
            (SimulatedEvent("S", {"a": 1, "b": "x", "c": 0}), "MESH-A400"),
            (SimulatedEvent("Z", [2]), "MESH-A404"),
            (SimulatedEvent("S", [2, "x" * 2_000_000]), "MESH-A413"),
        ):
            with pytest.raises(MeshError) as refused:
                await events.send("A", [good[0], bad])
            assert refused.value.code == code
        assert len(await sent(js)) == 2
