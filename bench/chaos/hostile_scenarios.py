"""Scenarios of careless or hostile publishers, and of storage that loses, or can't store."""

from __future__ import annotations

from typing import Final

from bench.chaos.faults import publishers, storage
from bench.chaos.scenario import Scenario
from bench.chaos.stage import Topology

#: The alarm of an instance whose input is not there any more: it names the sequences.
_LOST: Final = r"does not hold sequences \d+ to \d+ any more"
#: The same, or that other messages have them now, in all copies or in some.
_LOST_OR_REUSED: Final = (
    rf"{_LOST}|used their sequences again|whose input is lost"
    r"|copies of \S+ differ in sequences \d+ to \d+"
)

SCENARIOS: Final = (
    Scenario("rollup-attempted", "a publisher sends rollups", publishers.rollup_attempted),
    Scenario(
        "headers-forged", "a publisher forges the server's headers", publishers.headers_forged
    ),
    Scenario("bombs", "messages that need much memory or time", publishers.bombs_amid_load),
    Scenario("year-jumped", "events jump by a year", publishers.year_jumped, is_timed=True),
    Scenario(
        "power-lost",
        "the only NATS server loses its last writes",
        storage.power_lost,
        (_LOST,),
        is_lossy=True,
        has_one_server=True,
    ),
    Scenario(
        "power-lost-by-two",
        "two of three NATS servers lose their last writes",
        storage.power_lost_by_two,
        (_LOST_OR_REUSED,),
        topology=Topology.THREE,
        is_lossy=True,
        may_stop=True,
        spoils_stage=True,
    ),
    Scenario(
        "control-restored",
        "bucket of assignments restored from before the deploy",
        storage.bucket_restored("mesh_control"),
        (r"found that NATS has lost writes of bucket mesh_control",),
        deploys=True,
        has_one_server=True,
    ),
    Scenario(
        "snapshots-restored",
        "bucket of snapshots restored from before the deploy",
        storage.bucket_restored("mesh_snapshots"),
        deploys=True,
        has_one_server=True,
    ),
    Scenario(
        "store-away",
        "state.store can't be reached",
        storage.store_away,
        topology=Topology.DISKS,
    ),
    Scenario(
        "server-disk-full", "disk of NATS full", storage.server_disk_full, topology=Topology.DISKS
    ),
    Scenario(
        "worker-disk-full",
        "disk of the workers full",
        storage.worker_disk_full,
        topology=Topology.DISKS,
    ),
)
