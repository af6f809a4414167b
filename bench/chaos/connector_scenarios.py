"""Scenarios of sources and sinks: their host, their destinations, the broker between them."""

from __future__ import annotations

from typing import Any, Final

from bench.chaos.connector_scene import ConnectorScene
from bench.chaos.endpoints import Manner
from bench.chaos.faults import hosts
from bench.chaos.scenario import Scenario
from bench.chaos.stage import Topology

_MOVED: Final = (r"placed <app>-sink-S-1 on <other> .*worker <holder> is gone",)


def _scenario(name: str, fault: str, play: Any, story: tuple[str, ...] = ()) -> Scenario:
    return Scenario(name, fault, play, story, topology=Topology.HOSTS, scene=ConnectorScene)


SCENARIOS: Final = (
    _scenario("host-killed", "connector hosts killed", hosts.host_killed),
    _scenario("host-paused", "connector hosts paused", hosts.host_paused),
    _scenario(
        "host-worker-paused", "worker of a sink paused past its term", hosts.worker_paused, _MOVED
    ),
    _scenario("host-cut", "worker of a sink cut off", hosts.worker_cut, _MOVED),
    _scenario(
        "destination-refusing",
        "one of two destinations refuses connections",
        hosts.destination_is(Manner.CLOSED),
    ),
    _scenario(
        "destination-slow",
        "one of two destinations is slow",
        hosts.destination_is(Manner.SLOW),
    ),
    _scenario(
        "destination-half-open",
        "one of two destinations accepts and never answers",
        hosts.destination_is(Manner.SILENT),
    ),
    _scenario("broker-full", "channel of a source and a sink full", hosts.broker_full),
)
