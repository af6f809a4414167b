"""Previews by a manager: stored events, permissions, and the outputs of the deployed app."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from mesh.errors import MeshError
from mesh.manager.manager import running
from mesh.model import names
from mesh.model.access import ROLES, Grant, Identity, current
from mesh.settings import ManagerSettings, NatsSettings, Settings
from tests.support.history import CHAIN, METER, events, publish
from tests.support.played import played, playing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.manager.manager import Manager
    from mesh.manager.service import ManagerService
    from tests.support.shared_query import Hand

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]

START_MS = 1_767_225_600_000
SHOP = """@App:name('{app}')
define stream Orders (item string, price double);
{source}define stream Other (item string);
from Orders[price > 100.0] select item, price insert into Dear;
from Other select item insert into Items;
"""
EVE = Identity("eve", (Grant(ROLES["developer"], "Shop*"),))
#: Deploys Shop, and reads no payloads.
MAKER = Identity("mia", (Grant(frozenset({*ROLES["operator"]}) | {"apps.manage"}, "Shop*"),))  # type: ignore[arg-type]


@asynccontextmanager
async def shops(nats_server: NatsServer) -> AsyncIterator[ManagerService]:
    """A manager with apps Shop and Victim, whose stream Orders has 30 events each."""
    settings = Settings(nats=NatsSettings(url=nats_server.url), manager=ManagerSettings(id="m1"))
    async with running(settings) as (manager, service):
        for app in ("Shop", "Victim"):
            await service.deploy(SHOP.format(app=app, source=""))
            await send(manager, app, range(30))
        yield service


async def send(manager: Manager, app: str, numbers: range) -> None:
    for n in numbers:
        data = json.dumps({"item": f"i{n}", "price": 90.0 + n}).encode()
        headers = {names.EVENT_TIME_HEADER: str(START_MS + n * 1000)}
        await manager.client.jetstream().publish(
            names.subject(app, "Orders"), data, headers=headers
        )


def prices(found: Any) -> list[float]:
    return [one["event"]["price"] for one in found["outputs"] if one["stream"] == "Dear"]


@pytest.mark.slow
async def test_stored_events_are_the_last_ones_of_a_range(nats_server: NatsServer) -> None:
    async with shops(nats_server) as service:
        before = await service.client.jetstream().streams_info()
        text = SHOP.format(app="Shop", source="")
        found = await service.previews.preview(text, streams=["Orders"], last=5)
        assert [one["event"]["price"] for one in found["inputs"]] == [
            115.0,
            116.0,
            117.0,
            118.0,
            119.0,
        ]
        assert found["inputs"][0]["time"] == START_MS + 25_000
        assert prices(found) == [115.0, 116.0, 117.0, 118.0, 119.0]
        found = await service.previews.preview(text, streams=["Orders"], since="3", until="13")
        assert [one["event"]["item"] for one in found["inputs"]] == [f"i{n}" for n in range(2, 12)]
        # Places in time are those of the server.
        none = await service.previews.preview(
            text, streams=["Orders"], since="2020-01-01T00:00:00Z", until="2200-01-01T00:00:00Z"
        )
        assert len(none["inputs"]) == 30
        with pytest.raises(MeshError, match="no events"):
            await service.previews.preview(text, streams=["Orders"], until="2020-01-01T00:00:00Z")
        # Of another app, with typed events among them.
        line = {"time": START_MS, "stream": "Other", "event": {"item": "x"}}
        found = await service.previews.preview(
            SHOP.format(app="Draft", source=""), events=json.dumps(line),
            streams=["Orders=Victim.Orders"], against="Shop", keep=True,
        )  # fmt: skip
        assert len(found["inputs"]) == 31
        assert not found["against"]["differs"]
        assert found["test"].startswith("app: |2\n")
        # What the text's own source would read.
        source = "@source(type='nats', stream='mesh-Victim-Orders', @map(type='json'))"
        found = await service.previews.preview(
            SHOP.format(app="Draft", source=source), streams=["Other"], last=3
        )
        assert [one["event"] for one in found["outputs"]] == [
            {"item": f"i{n}"} for n in (27, 28, 29)
        ]
        # Nothing was stored, and nothing published.
        after = await service.client.jetstream().streams_info()

        def stored(streams: list[Any]) -> list[tuple[str, int]]:
            # A manager adds samples of its figures at any time.
            counts = [(s.config.name, s.state.messages) for s in streams]
            return [one for one in counts if one[0] != "mesh_history"]

        assert stored(after) == stored(before)
        assert service.record("Draft") is None


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"streams": ["Nothing"]}, "MESH-A404"),
        ({"streams": ["Orders=Gone.Orders"]}, "MESH-A404"),
        ({"streams": ["Orders=Victim.Nothing"]}, "MESH-A404"),
        ({"streams": ["Orders=a b.c"]}, "MESH-A400"),
        ({"streams": ["Orders"], "since": "yesterday"}, "MESH-A400"),
        ({"streams": ["Orders"] * 17}, "MESH-A400"),
        ({"events": "{}", "against": "Gone"}, "MESH-A404"),
        ({"events": "{}"}, "MESH-U160"),
        ({}, "MESH-U160"),
    ],
)
async def test_a_request_that_names_nothing_is_refused(
    nats_server: NatsServer, asked: dict[str, Any], code: str
) -> None:
    async with shops(nats_server) as service:
        with pytest.raises(MeshError) as refused:
            await service.previews.preview(SHOP.format(app="Shop", source=""), **asked)
        assert refused.value.code == code


@pytest.mark.slow
async def test_stored_events_are_bounded_and_what_is_none_is_told(
    nats_server: NatsServer,
) -> None:
    text = SHOP.format(app="Shop", source="")
    async with shops(nats_server) as service:
        js = service.client.jetstream()
        await js.publish(names.subject("Shop", "Orders"), b"no event")
        found = await service.previews.preview(text, streams=["Orders"], last=3)
        assert len(found["inputs"]) == 2
        assert found["notes"] == ['1 messages of stream "Orders" can\'t be read']
        large = json.dumps({"item": "x" * 900_000, "price": 1.0}).encode()
        for _ in range(10):
            await js.publish(names.subject("Shop", "Orders"), large)
        with pytest.raises(MeshError, match="MESH-C172") as refused:
            await service.previews.preview(text, streams=["Orders"])
        assert "8 MB" in (refused.value.detail or "")
        assert (await service.previews.preview(text, streams=["Orders"], last=5))["outputs"] == []
        await js.add_stream(name="OTHERS", subjects=["others"])
        source = "@source(type='nats', stream='OTHERS', @map(type='json'))"
        with pytest.raises(MeshError, match="MESH-A422"):
            await service.previews.preview(
                SHOP.format(app="Shop", source=source), streams=["Other"]
            )


async def test_functions_are_refused_with_the_way_to_run_them(nats_server: NatsServer) -> None:
    settings = Settings(nats=NatsSettings(url=nats_server.url), manager=ManagerSettings(id="m1"))
    text = "@App:name('F') define stream S (a int); define function f[python] return int "
    text += "{ return 1 }; from S select f(a) as b insert into T;"
    line = '{"time": 1, "stream": "S", "event": {"a": 1}}'
    async with running(settings) as (_, service):
        with pytest.raises(MeshError, match="MESH-S131") as refused:
            await service.previews.preview(text, events=line)
    assert refused.value.hint is not None


async def test_events_of_others_and_their_texts_are_not_shown(nats_server: NatsServer) -> None:
    async with shops(nats_server) as service:
        text = SHOP.format(app="Shop", source="")
        source = "@source(type='nats', stream='mesh-Victim-Orders', @map(type='json'))"
        line = json.dumps({"time": 1, "stream": "Other", "event": {"item": "a"}})
        attempts: list[tuple[Identity, str, dict[str, Any]]] = [
            (EVE, text, {"streams": ["Orders=Victim.Orders"]}),
            (EVE, text, {"events": line, "against": "Victim"}),
            (EVE, SHOP.format(app="Shop2", source=source), {"events": line}),
            (EVE, SHOP.format(app="Shop2", source=source), {"streams": ["Other"]}),
            (MAKER, text, {"streams": ["Orders"]}),
            (MAKER, text, {"events": line, "against": "Shop"}),
        ]
        for identity, given, asked in attempts:
            token = current.set(identity)
            try:
                with pytest.raises(MeshError, match="MESH-A403"):
                    await service.previews.preview(given, **asked)
            finally:
                current.reset(token)
        allowed: list[tuple[Identity, dict[str, Any]]] = [
            (EVE, {"streams": ["Orders"], "against": "Shop"}),
            (MAKER, {}),
        ]
        for identity, asked in allowed:
            token = current.set(identity)
            try:
                assert (await service.previews.preview(text, events=line, **asked))["outputs"]
            finally:
                current.reset(token)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", [METER, CHAIN], ids=["by key", "chain"])
async def test_outputs_are_those_of_the_deployed_app(
    hand: Hand, nats_server: NatsServer, tmp_path: Path, text: str
) -> None:
    rows, stream = events(60), "Totals" if text is METER else "Lasts"
    count = sum(row["watt"] >= 0 for row in rows)
    async with playing(nats_server, tmp_path) as (have, runner):
        await have.service.deploy(text.format(name="Live", source=""))
        live = await played(have, "Live", hand, runner)
        await publish(have, "mesh.Live.Readings", rows)
        await live.until(stream, count)
        whole = live.rows(stream)
        await live.stop()
        found = await have.service.previews.preview(
            text.format(name="Live", source=""), streams=["Readings"]
        )
    shown = [list(o["event"].values()) for o in found["outputs"] if o["stream"] == stream]
    assert len(shown) == count
    for device in sorted({row["device"] for row in rows}) if text is METER else [None]:
        own = [row for row in whole if device in (None, row[0])]
        assert json.dumps([row for row in shown if device in (None, row[0])]) == json.dumps(own)
