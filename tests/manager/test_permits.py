"""Each way in which a text becomes an app is refused what its author may not read.

The text is another user's (an administrator's) in a fork without a text, a backup or a promotion:
the user who asks for it has to have the permission.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from mesh.errors import MeshError
from mesh.manager.manager import running
from mesh.model import names
from mesh.model.access import ROLES, Grant, Identity, current
from mesh.model.history import HistoryInput
from mesh.settings import ManagerSettings, NatsSettings, Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from mesh.jetstream.server import NatsServer
    from mesh.manager.manager import Manager
    from mesh.manager.service import ManagerService

pytestmark = pytest.mark.nats

VICTIM: Final = "@App:name('Victim') define stream Ein (k string); from Ein select k insert into X;"
#: A fork reads stream S of the app that it is of, and Q itself.
APP: Final = (
    "@App:name('{app}') define stream S (k string); {source} define stream Q (k string); "
    "from S select k insert into T; from Q select k insert into U;"
)
BASE: Final = "@App:name('Other') define stream S (k string); from S select k insert into T;"
#: Streams that only their users, or administrators, may read.
STREAMS: Final = (
    "mesh-Victim-Ein", "mesh-Victim-errors-", "mesh-topics-", "mesh_journal", "KV_mesh_apps",
    "KV_mesh_control", "KV_mesh_secrets", "OBJ_mesh_state",
)  # fmt: skip
#: Forms of a source: read by the query group, and by a connector.
FORMS: Final = {
    "native": "@source(type='nats', stream='{stream}', @map(type='json'))",
    "mapped": "@source(type='nats', stream='{stream}', @map(type='json', @attributes(k='$.k')))",
    "text": "@source(type='nats', stream='{stream}', @map(type='xml'))",
    "case": "@Source(Type='nats', STREAM='{stream}', @map(type='csv'))",
    "reference": "@source(type='nats', stream='{stream}', ref='r', @map(type='json'))",
    "second": "@source(type='inMemory', topic='t', @map(type='json')) "
    "@source(type='nats', stream='{stream}', @map(type='json'))",
}
EVE: Final = Identity("eve", (Grant(ROLES["developer"], "Other*"),))
ADA: Final = Identity("ada", (Grant(ROLES["developer"], "*"),))


def text_of(app: str, form: str = "native", stream: str = "mesh-Victim-Ein") -> str:
    return APP.format(app=app, source=FORMS[form].format(stream=stream))


@contextmanager
def asked_by(identity: Identity) -> Iterator[None]:
    token = current.set(identity)
    try:
        yield
    finally:
        current.reset(token)


@asynccontextmanager
async def with_victim(server: NatsServer) -> AsyncIterator[tuple[Manager, ManagerService]]:
    """A manager of a mesh with app Victim."""
    settings = Settings(nats=NatsSettings(url=server.url), manager=ManagerSettings(id="m1"))
    async with running(settings) as (manager, service):
        await service.deploy(VICTIM)
        yield manager, service


def ways(service: ManagerService, text: str) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Requests that make an app of a text."""
    past = [HistoryInput("S", "nats:OLD", "")]
    return {
        "deploy": lambda: service.deploy(text),
        "put": lambda: service.update(text),
        "replace": lambda: service.update(text, replace=True),
        "plan": lambda: service.preview(text),
        "preview": lambda: service.previews.preview(text, streams=["Q"]),
        "check": lambda: service.check(text),
        "what-if": lambda: service.what_ifs.what_if(text, ["S=1"], 1, 1),
        "backfill": lambda: service.backfills.backfill(text, past),
        "fork": lambda: service.forks.fork("Other", "OtherFork", text=text),
        "fork from the past": lambda: service.forks.fork(
            "Other", "OtherFork", text=text, begin="backup"
        ),
    }


@pytest.mark.parametrize("form", FORMS)
async def test_each_way_of_a_text_is_refused(nats_server: NatsServer, form: str) -> None:
    async with with_victim(nats_server) as (manager, service):
        await service.deploy(BASE)
        await service.backups.make("Other")
        before = sorted(str(s.config.name) for s in await manager.client.jetstream().streams_info())
        for stream in STREAMS:
            for name, way in ways(service, text_of("Other2", form, stream)).items():
                with asked_by(EVE), pytest.raises(MeshError) as refused:
                    await way()
                assert refused.value.code == "MESH-A403", (name, stream)
                if names.app_of_js_stream(stream) is None:
                    with asked_by(ADA), pytest.raises(MeshError, match="MESH-A403"):
                        await way()
        after = sorted(str(s.config.name) for s in await manager.client.jetstream().streams_info())
        assert after == before
        assert service.record("Other2") is service.record("OtherFork") is None


async def test_a_text_of_others_is_decided_for_who_asks(
    nats_server: NatsServer,
) -> None:
    async with with_victim(nats_server) as (_, service):
        with asked_by(ADA):
            await service.deploy(text_of("Other"))
            await service.backups.make("Other")
        for way in (
            lambda: service.forks.fork("Other", "OtherFork"),
            lambda: service.backups.restore("Other"),
            lambda: service.backups.restore("Other", other="Other3"),
            lambda: service.update(text_of("Other").replace("select k", "select k as k")),
        ):
            with asked_by(EVE), pytest.raises(MeshError, match="MESH-A403"):
                await way()
        await service.undeploy("Other")
        with asked_by(EVE), pytest.raises(MeshError, match="MESH-A403"):
            await service.backups.restore("Other")
        with asked_by(ADA):
            await service.backups.restore("Other", other="Other3")
            record = service.record("Other3")
            assert record is not None
            assert [group.reads for group in record.spec.groups] == [("mesh-Victim-Ein",)]


async def test_a_promotion_is_decided_for_who_promotes(
    nats_server: NatsServer,
) -> None:
    async with with_victim(nats_server) as (_, service):
        await service.deploy(BASE)
        with asked_by(ADA):
            text = text_of("Other")
            await service.forks.fork("Other", "OtherFork", text=text, begin="latest")
        with asked_by(EVE), pytest.raises(MeshError, match="MESH-A403"):
            await service.promotions.promote("OtherFork")
        record = service.record("Other")
        assert record is not None
        assert "Victim" not in record.spec.text


@pytest.mark.parametrize("form", FORMS)
async def test_the_record_has_what_the_author_may_read(nats_server: NatsServer, form: str) -> None:
    async with with_victim(nats_server) as (_, service):
        text = text_of("Other", form)
        with asked_by(ADA):
            await service.deploy(text)
        record = service.record("Other")
        assert record is not None
        assert {s for g in record.spec.groups for s in g.reads or ()} == {"mesh-Victim-Ein"}
        # A fork reads the app's own input, which the user may fork.
        with asked_by(ADA):
            await service.forks.fork("Other", "Fork", begin="latest")
        fork = service.record("Fork")
        assert fork is not None
        for group in fork.spec.groups:
            streams = {s for i in group.inputs for s in i.channel.js_streams}
            assert streams - {s for c in fork.spec.channels for s in c.js_streams} == set(
                group.reads or ()
            )


async def test_a_record_of_an_earlier_version_gets_it_by_another_deploy(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_victim(nats_server) as (_, service):
        with monkeypatch.context() as earlier:
            earlier.setattr("mesh.manager.planning.with_reads", lambda spec, _: spec)
            await service.deploy(text_of("Other", "mapped"))
        record = service.record("Other")
        assert record is not None
        assert all(group.reads is None for group in record.spec.groups)
        with asked_by(EVE), pytest.raises(MeshError, match="MESH-A403"):
            await service.deploy(text_of("Other", "mapped"))
        with asked_by(ADA):
            await service.deploy(text_of("Other", "mapped"))
        record = service.record("Other")
        assert record is not None
        assert {s for g in record.spec.groups for s in g.reads or ()} == {"mesh-Victim-Ein"}
