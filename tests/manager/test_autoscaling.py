"""The autoscaler of a manager: what it samples, and what it asks for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from mesh.control.autoscale import SAMPLE_S, WINDOW_S
from mesh.control.lifecycle import AppState, AppStatus
from mesh.manager.autoscaling import Autoscaling, loads_of
from mesh.manager.manager import running
from mesh.manager.rates import Flow
from mesh.model.cluster import AppRecord
from mesh.plan.build import plan
from mesh.settings import ManagerSettings, NatsSettings, Settings

if TYPE_CHECKING:
    from mesh.control.journal import JournalEntry
    from mesh.jetstream.server import NatsServer

TEXT = """@App:name('Shop')
define stream S (k string, a int);
@dist(execGroup='copy', min='1', max='4') from S select k, a insert into T;
@dist(execGroup='sums') from T select k, sum(a) as total group by k insert into U;
"""
PLAIN = "@App:name('Plain') define stream S (a int); from S select a insert into T;"
FLOWS = {"Shop-copy-1": Flow(messages=1000.0, backlog=50_000), "Shop-sums-1": Flow(messages=7.0)}


def flow(instance: str) -> Flow:
    return FLOWS.get(instance, Flow())


class Ticks:
    """A clock that goes on by a sample each time it is read."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        self.now_s += SAMPLE_S
        return self.now_s

    def wall_ms(self) -> int:
        return round(1000 * self.now_s)


def test_a_sample_has_every_group_with_the_readers_of_what_it_writes() -> None:
    record = AppRecord(plan(TEXT).spec, "i", 0)
    status = AppStatus("Shop", AppState.RUNNING, None, ())
    copy, sums = loads_of([record], [status], flow)
    assert (copy.key, copy.sizes, copy.rate, copy.backlog) == (
        ("Shop", "copy"),
        (1, 2, 3, 4),
        1000.0,
        50_000,
    )
    assert copy.readers == (sums.key,)
    assert (sums.sizes, sums.rate, sums.readers) == ((), 7.0, ())
    assert copy.is_settled
    for state in set(AppState) - {AppState.RUNNING}:
        assert not loads_of([record], [AppStatus("Shop", state, None, ())], flow)[0].is_settled
    assert not loads_of([record], [], flow)[0].is_settled


@pytest.mark.nats
@pytest.mark.parametrize("acts", [True, False])
async def test_a_busy_group_is_scaled_or_the_story_tells_that_it_would_be(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, acts: bool
) -> None:
    noted: list[JournalEntry] = []

    async def idle(*_: object) -> None:
        await asyncio.get_running_loop().create_future()

    # The manager's own autoscaler would overwrite what is wanted.
    monkeypatch.setattr(Autoscaling, "run", idle)
    settings = Settings(nats=NatsSettings(url=nats_server.url), manager=ManagerSettings(id="m1"))

    async with running(settings) as (_, service):
        await service.deploy(PLAIN)
        # Nobody needs the load of groups while none is scaled by it.
        assert not service.loads()[0]
        await service.deploy(TEXT)
        assert {record.spec.name for record in service.loads()[0]} == {"Plain", "Shop"}

        def loads() -> Any:
            record = service.record("Shop")
            return [record], [AppStatus("Shop", AppState.RUNNING, None, ())], flow

        # No worker is here that would report them.
        monkeypatch.setattr(service, "loads", loads)
        scaling = Autoscaling(service, noted.append, Ticks(), acts=acts)
        for _ in range(round(WINDOW_S / SAMPLE_S)):
            await scaling.step()
        assert not noted
        # Needed are 4 for (1000 + 50000 / 20) / 800, and at first there are two more.
        await scaling.step()
        record = service.record("Shop")
        assert record is not None
        group = record.spec.group("copy")
        assert group is not None
        assert (group.parallel, record.scaled) == ((3, {"copy": 3}) if acts else (1, {}))
        assert (await service.cluster_figures())["targets"] == {("Shop", "copy"): 4}
        await service.undeploy("Shop")
    (entry,) = noted
    done = "scaled" if acts else "would scale"
    assert entry.text == f"{done} group copy from 1 to 3 by load"
    assert (entry.by, entry.app) == ("autoscaler", "Shop")
    assert entry.cause.startswith("50,000 messages wait")
