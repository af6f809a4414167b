"""Sources and sinks in a cluster: placed by managers, moved, fenced, and removed with their app.

Managers, agents and connector hosts are real processes; the sessions run nothing.
"""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest

from mesh.control.collisions import address_collision
from mesh.control.placement import Candidate, Need, place
from mesh.model.cluster import InstanceState
from mesh.plan.build import plan
from mesh.receiver.sinks import destination_of
from mesh.worker.children import HOST
from tests.support.agents import looking
from tests.support.connectors import Endpoint

if TYPE_CHECKING:
    from tests.support.agents import Cluster, Eye

pytestmark = pytest.mark.nats

#: The sample of the reference engine's documentation, with addresses of this machine.
APP = """@App:name('Requests')
@source(type='http', receiver.url='http://127.0.0.1:0/in', @map(type='json'))
define stream Arrived (userTenantDomain string, n int);
@sink(type='http', @map(type='json'),
      @distribution(strategy='partitioned', partitionKey='userTenantDomain',
                    @destination(publisher.url='{}'), @destination(publisher.url='{}')))
define stream Requests (userTenantDomain string, n int);
from Arrived select userTenantDomain, n insert into Requests;
"""
LISTEN = {"MESH_RECEIVER_LISTEN": "127.0.0.1:0-65535"}


def connectors(eye: Eye, instance: str) -> tuple[Any, ...]:
    """The connectors of a running instance, of its present epoch."""
    epoch = eye.epochs().get(instance)
    return next(
        (
            s.value.connectors
            for s in eye.view.snapshot().statuses
            if (s.value.instance, s.value.epoch, s.value.state)
            == (instance, epoch, InstanceState.RUNNING)
        ),
        (),
    )


def url_of(eye: Eye) -> str | None:
    """The address of the source."""
    found = connectors(eye, "Requests-receiver-Arrived-1")
    return found[0].endpoint if found and not found[0].endpoint.endswith(":0/in") else None


@pytest.mark.extended
async def test_the_originals_sample_runs_moves_and_goes(cluster: Cluster) -> None:
    async def play(eye: Eye, one: Endpoint, other: Endpoint) -> None:
        cluster.manager("m1")
        cluster.worker("w1", **LISTEN)
        await eye.until("a worker", lambda: "w1" in eye.ready(), 40)
        await eye.service.deploy(APP.format(one.url, other.url))
        await eye.service.wait_running("Requests", 60)
        url = await eye.until("an address", lambda: url_of(eye), 40)
        async with httpx.AsyncClient() as client:
            event = {"event": {"userTenantDomain": "a", "n": 1}}
            assert (await client.post(url, json=event)).json() == {"accepted": 1}
            assert (await client.post(url, content=b"x")).status_code == 400
        js = eye.client.jetstream()
        stored = await js.get_last_msg("mesh-Requests-Arrived", "mesh.Requests.Arrived")
        assert json.loads(stored.data or b"") == event["event"]

        sent = [{"userTenantDomain": f"t{n % 5}", "n": n} for n in range(60)]
        expected: list[list[int]] = [[], []]
        for row in sent:
            expected[destination_of(str(row["userTenantDomain"]), 2)].append(int(str(row["n"])))

        async def publish(first: int, last: int) -> None:
            for row in sent[first:last]:
                await js.publish("mesh.Requests.Requests", json.dumps(row).encode())

        def numbers(end: Endpoint) -> list[int]:
            return [body["event"]["n"] for body in end.bodies]

        def upto(last: int) -> list[list[int]]:
            return [[n for n in part if n < last] for part in expected]

        await publish(0, 20)
        await eye.until("20 requests", lambda: [numbers(one), numbers(other)] == upto(20), 40)
        # One destination is away, the host is killed, and another worker takes over.
        await other.close()
        host = next(
            child
            for child in psutil.Process(cluster.processes["w1"].pid).children()
            if HOST in child.cmdline()
        )
        os.kill(host.pid, signal.SIGKILL)
        await publish(20, 40)
        await eye.until("the near one", lambda: numbers(one) == upto(40)[0], 40)
        cluster.worker("w2", **LISTEN)
        await eye.until("w2", lambda: "w2" in eye.ready(), 40)
        cluster.signal("w1", signal.SIGTERM)
        await eye.until("a move", lambda: set(eye.placed().values()) == {"w2"}, 40)
        await publish(40, 60)
        await other.open()
        await eye.until("all", lambda: [numbers(one), numbers(other)] == upto(60), 40)
        await eye.until("its new address", lambda: url_of(eye), 40)
        await eye.service.undeploy("Requests")
        await eye.until("nothing placed", lambda: not eye.placed(), 40)

    async with looking(cluster) as eye:
        one, other = Endpoint(), Endpoint()
        for end in (one, other):
            await end.open()
        try:
            await play(eye, one, other)
        finally:
            for end in (one, other):
                await end.close()


def test_an_instance_waits_for_a_worker_with_its_connector() -> None:
    need = Need("A-sink-T-1", "A", "sink-T", frozenset(), True, frozenset({"sink kafka"}))
    without = Candidate("w1", connectors=frozenset({"sink http"}))
    found = place([need], {}, [without])
    assert found.where == {}
    assert found.waiting["A-sink-T-1"].reason == 'no worker has connector "sink kafka"'
    able = Candidate("w2", connectors=frozenset({"sink kafka"}))
    assert place([need], {}, [without, able]).where == {"A-sink-T-1": "w2"}


def test_a_worker_without_spark_gets_sources_and_sinks_alone() -> None:
    connector = Need(
        "A-sink-T-1", "A", "sink-T", is_receiver=True, connectors=frozenset({"sink http"})
    )
    query = Need("A-default-1", "A", "default")
    light = Candidate("w1", connectors=frozenset({"sink http"}), has_spark=False)
    found = place([connector, query], {}, [light])
    assert found.where == {"A-sink-T-1": "w1"}
    assert found.waiting["A-default-1"].reason == "no worker has Spark"


def test_an_address_is_one_apps() -> None:
    text = """@App:name('{}') @source(type='http', receiver.url='http://h:8280/{}')
    define stream S (n int); from S select n insert into T;"""
    one, same, other = (plan(text.format(a, b)).spec for a, b in ("Aa", "Ba", "Cb"))
    assert address_collision(same, [one, other]) == ("h:8280/a", "A")
    assert address_collision(other, [one, other]) is None
    default = plan(text.format("A", "a").replace(", receiver.url='http://h:8280/a'", "")).spec
    assert [g.address for g in default.groups if g.address] == ["0.0.0.0:8280/A/S"]
