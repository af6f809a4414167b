"""Making an app's JetStream streams where answers get lost, as they do on three servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import nats
import orjson
import pytest
from nats.js.errors import APIError

from mesh.jetstream.channels import ensure_channels, js_streams, update_streams
from mesh.model import names
from mesh.plan.build import plan
from mesh.settings import ChannelSettings
from tests.support.nats_versions import skip_without_ingest

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

APP = "@App:name('A') define stream S (a int); from S select a insert into T;"


class _Lossy:
    """A client that loses every other answer."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.calls = 0
        self.connected_server_version = client.connected_server_version

    def jetstream(self) -> Any:
        return self._client.jetstream()

    async def request(self, *call: Any, **options: Any) -> Any:
        reply = await self._client.request(*call, **options)
        self.calls += 1
        if self.calls % 2:
            raise TimeoutError
        return reply


@dataclass
class _Answer:
    data: bytes


class _Racing(_Lossy):
    """A client whose first answer is that of a server that loses the race with its own removal.

    Of 1,088 streams that were made while the last other one was deleted, one got that answer.
    """

    async def request(self, *call: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls == 1:
            return _Answer(orjson.dumps({"error": {"code": 500, "err_code": 10049}}))
        return await self._client.request(*call, **options)


class _Silent(_Lossy):
    async def request(self, *call: Any, **options: Any) -> Any:
        self.calls += 1
        raise TimeoutError


@pytest.mark.nats
async def test_a_stream_whose_answer_was_lost_is_asked_for_again(nats_server: NatsServer) -> None:
    client = await nats.connect(nats_server.url)
    spec = plan(APP).spec
    lossy, silent = _Lossy(client), _Silent(client)
    await ensure_channels(lossy, spec, ChannelSettings())  # type: ignore[arg-type]
    wanted = [name for name, _ in js_streams(spec)]
    assert {info.config.name for info in await client.jetstream().streams_info()} == set(wanted)
    assert lossy.calls == 2 * len(wanted)
    with pytest.raises(TimeoutError):
        await ensure_channels(silent, spec, ChannelSettings())  # type: ignore[arg-type]
    assert silent.calls > 1
    # A manager starts all the same.
    await update_streams(silent, [spec])  # type: ignore[arg-type]
    await client.close()


@pytest.mark.nats
async def test_a_store_that_was_removed_meanwhile_is_asked_for_again(
    nats_server: NatsServer,
) -> None:
    client = await nats.connect(nats_server.url)
    racing, spec = _Racing(client), plan(APP).spec
    await ensure_channels(racing, spec, ChannelSettings())  # type: ignore[arg-type]
    assert racing.calls == len(list(js_streams(spec))) + 1
    await client.close()


@pytest.mark.nats
async def test_streams_of_an_earlier_version_update_streams_from_then_on(
    nats_server: NatsServer,
) -> None:
    client = await nats.connect(nats_server.url)
    skip_without_ingest(client)
    js = client.jetstream()
    spec = plan(APP).spec
    await ensure_channels(client, spec, ChannelSettings())
    for name in ("mesh-A-S", "mesh-A-T", "OTHER"):
        config = {"name": name, "subjects": [f"x.{name}"], "allow_rollup_hdrs": True}
        if name != "OTHER":
            info = await client.request(f"$JS.API.STREAM.INFO.{name}", b"", timeout=10)
            config = {**orjson.loads(info.data)["config"], "allow_rollup_hdrs": True}
            assert config.pop("allow_batched") is True
            assert await rollups(client, name) is False
        verb = "CREATE" if name == "OTHER" else "UPDATE"
        await client.request(f"$JS.API.STREAM.{verb}.{name}", orjson.dumps(config), timeout=10)
        assert await rollups(client, name) is True
    await js.publish("mesh.A.S", b"1")
    await update_streams(client, [spec])
    assert not any([await rollups(client, name) for name, _ in js_streams(spec)])
    assert await rollups(client, "OTHER") is True
    assert await allows(client, "OTHER", "allow_batched") is False
    assert all([await allows(client, name, "allow_batched") for name, _ in js_streams(spec)])
    with pytest.raises(APIError, match="rollup not permitted"):
        await js.publish("mesh.A.S", b"2", headers={"Nats-Rollup": "all"})
    assert (await js.stream_info("mesh-A-S")).state.messages == 1
    await client.close()


async def rollups(client: Any, name: str) -> bool:
    return await allows(client, name, "allow_rollup_hdrs")


async def allows(client: Any, name: str, setting: str) -> bool:
    info = await client.request(f"$JS.API.STREAM.INFO.{name}", b"", timeout=10)
    return bool(orjson.loads(info.data)["config"].get(setting))


@pytest.mark.nats
async def test_channels_and_error_streams_have_bounds_of_their_own(nats_server: NatsServer) -> None:
    client = await nats.connect(nats_server.url)
    spec = plan(APP).spec
    await ensure_channels(client, spec, ChannelSettings(max_bytes=5000, errors_max_bytes=7000))
    bytes_of = {
        info.config.name: info.config.max_bytes for info in await client.jetstream().streams_info()
    }
    errors = names.error_js_stream(spec.name)
    assert bytes_of.pop(errors) == 7000
    assert set(bytes_of.values()) == {5000}
    await client.jetstream().delete_stream(errors)
    await ensure_channels(client, spec, ChannelSettings(errors_max_bytes=0))
    info = await client.jetstream().stream_info(errors)
    assert info.config.max_bytes == -1
    await client.close()


@pytest.mark.nats
async def test_an_app_reserves_what_its_error_stream_may_hold(nats_server: NatsServer) -> None:
    client = await nats.connect(nats_server.url)

    async def reserved() -> int:
        answer = await client.request("$JS.API.INFO", b"", timeout=10)
        return int(orjson.loads(answer.data)["reserved_storage"])

    before = await reserved()
    await ensure_channels(client, plan(APP).spec, ChannelSettings())
    assert await reserved() - before == ChannelSettings().errors_max_bytes <= 4_000_000
    await client.close()


@pytest.mark.nats
async def test_a_message_above_a_channels_bound_is_refused_and_deletes_nothing(
    nats_server: NatsServer,
) -> None:
    client = await nats.connect(nats_server.url)
    spec = plan(APP).spec
    await ensure_channels(client, spec, ChannelSettings(max_bytes=10_000))
    js = client.jetstream()
    subject = names.subject(spec.name, "S")
    await js.publish(subject, b"{}")
    with pytest.raises(APIError) as refused:
        await js.publish(subject, bytes(9_500))
    assert refused.value.err_code == 10054
    for _ in range(3):
        await js.publish(subject, bytes(8_900))
    info = await js.stream_info(names.js_stream(spec.name, "S"))
    assert (info.state.last_seq, info.state.messages) == (4, 1)
    await client.close()
