"""Mistyped names of apps and streams of a tap, a publisher and a trace, with a server's roles."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from mesh import client
from mesh.cli import trace
from mesh.client import taps
from mesh.jetstream import kv, server
from mesh.jetstream.connection import close, connect
from mesh.model import codec, names
from mesh.model.cluster import AppRecord
from mesh.plan.build import plan
from mesh.settings import NatsSettings
from tests.support.permissions import PASSWORDS, inbox_of, write_accounts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

TEXT = "@App:name('{}') define stream Orders (n int); from Orders select n insert into Found;"


def login(made: NatsServer, name: str) -> dict[str, Any]:
    """The settings of a user, by name."""
    values = {"user": name, "password": PASSWORDS[name], "inbox_prefix": inbox_of(name)}
    return {**values, "url": made.url}


def context(made: NatsServer, name: str) -> client.ClientContext:
    """A context with a user's login."""
    values = {f"nats_{key}": value for key, value in login(made, name).items()}
    return client.ClientContext("http://127.0.0.1:9", nats=values.pop("nats_url"), **values)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server with the roles of ``mesh dev``, the app Shop, and an app Shopp that was removed."""
    directory = tmp_path_factory.mktemp("roles")
    made = server.start(directory / "nats", arguments=write_accounts(directory / "accounts.conf"))

    async def deploy() -> None:
        nats = await connect(NatsSettings(**login(made, "manager")), "test")
        js = nats.jetstream()
        await kv.ensure_bucket(js, names.APPS_BUCKET, 1)
        for app in ("Shop", "Shopp"):
            value = codec.encode(AppRecord(plan(TEXT.format(app)).spec, "i1", 0))
            await kv.put(js, names.APPS_BUCKET, names.app_key(app), value)
        await kv.put(js, names.APPS_BUCKET, names.app_key("Shopp"), None)
        subjects = [names.subject("Shop", "Orders")]
        await js.add_stream(name=names.js_stream("Shop", "Orders"), subjects=subjects)
        await close(nats)

    asyncio.run(deploy())
    yield made
    made.stop()


async def refusal(at: client.ClientContext, app: str, stream: str, **options: Any) -> Any:
    """The error of a tap that is entered and asked for an event."""
    with pytest.raises(client.MeshError) as raised:
        async with asyncio.timeout(60), taps.AsyncTap(at, app, stream, **options) as events:
            await anext(aiter(events))
    return raised.value


@pytest.mark.parametrize("from_start", [False, True])
async def test_a_tap_of_a_mistyped_app_names_the_nearest_one_that_is_deployed(
    guarded: NatsServer, from_start: bool
) -> None:
    at = context(guarded, "operator")
    for app in ("Shpp", "shop", "Shopp"):
        error = await refusal(at, app, "Orders", from_start=from_start)
        assert (error.code, error.message) == ("MESH-A404", f'app "{app}" is not deployed')
        assert error.hint == 'Did you mean "Shop"?'
    far = await refusal(at, "Weather", "Orders", from_start=from_start)
    assert (far.detail, far.hint) == ("Deployed are: Shop.", "'mesh apps' lists those that are.")


@pytest.mark.parametrize("from_start", [False, True])
async def test_a_tap_of_a_mistyped_stream_names_the_nearest_one(
    guarded: NatsServer, from_start: bool
) -> None:
    at = context(guarded, "operator")
    error = await refusal(at, "Shop", "orders", from_start=from_start)
    assert (error.code, error.hint) == ("MESH-N111", 'Did you mean "Orders"?')
    assert error.detail.endswith("Channels: Found, Orders.")
    far = await refusal(at, "Shop", "Zzz", from_start=from_start)
    assert far.hint == "'mesh streams Shop' lists the channels."


async def test_a_publisher_and_a_trace_name_the_nearest_ones_too(guarded: NatsServer) -> None:
    at = context(guarded, "operator")
    for app, stream, code, near in (
        ("Shp", "Orders", "MESH-A404", "Shop"),
        ("Shop", "Order", "MESH-N111", "Orders"),
    ):
        with pytest.raises(client.MeshError) as published:
            await taps.publish(at, app, stream, [{"n": 1}], "")
        with pytest.raises(client.MeshError) as traced:
            await trace.trace_event(at, app, stream, b'{"n": 1}', 5.0)
        for raised in (published, traced):
            assert (raised.value.code, raised.value.hint) == (code, f'Did you mean "{near}"?')


async def test_events_of_an_app_that_was_removed_are_still_read(guarded: NatsServer) -> None:
    nats = await connect(NatsSettings(**login(guarded, "manager")), "test")
    try:
        subject = names.subject("Gone", "Orders")
        await nats.jetstream().add_stream(
            name=names.js_stream("Gone", "Orders"), subjects=[subject]
        )
    finally:
        await close(nats)
    at = context(guarded, "operator")
    assert await taps.publish(at, "Gone", "Orders", [{"n": 1}], "") == 1
    async with taps.AsyncTap(at, "Gone", "Orders", from_start=True) as events:
        found = await events.take(1, timeout_s=20)
    assert [one.event for one in found] == [{"n": 1}]


@pytest.mark.slow
async def test_a_login_that_may_not_read_a_stream_is_told_so(guarded: NatsServer) -> None:
    # It may read DearOrders alone, and knows of no app.
    error = await refusal(context(guarded, "board"), "Shop", "Orders")
    assert (error.code, error.hint) == ("MESH-N110", "Name a stream that the login may read.")
    assert "mesh.Shop.Orders" in error.detail.replace("mesh.shop.orders", "mesh.Shop.Orders")
