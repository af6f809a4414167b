"""Scenarios of one machine, and of what an operator deletes: see docs/operations.md, "Faults"."""

from __future__ import annotations

from typing import Final

from bench.chaos import app
from bench.chaos.faults import machines
from bench.chaos.scenario import Scenario
from bench.chaos.stage import Topology
from mesh.jetstream.evidence import STREAMS
from mesh.model.names import JOURNAL_STREAM

SCENARIOS: Final = (
    Scenario("jvm-stopped", "the JVM of a session stopped for 20 s", machines.jvm_stopped),
    *(
        Scenario(
            f"{stream.partition('mesh_')[2]}-deleted",
            f"stream {stream} deleted",
            machines.bucket_deleted(stream),
            # A story begins with the deploy, which a deleted journal has no more.
            () if stream == JOURNAL_STREAM else (rf"made {stream} again",),
            has_one_server=True,
        )
        for stream in STREAMS
    ),
    Scenario("input-purged", "the input purged but for 100 messages", machines.input_purged),
    Scenario("outputs-purged", "outputs and markers purged", machines.outputs_purged),
    Scenario(
        "jetstream-full",
        "the store of JetStream at its limit",
        machines.store_full,
        topology=Topology.DISKS,
    ),
    *(
        Scenario(
            f"{name}-stream-deleted",
            f"the {name} of an app deleted, then undeployed and deployed",
            machines.stream_deleted(stream),
            (
                r"will start again <app>-.* does not exist",
                r"placed <app>-sums-1 on .*deployed",
                r"runs <app>-sums-1",
            ),
            is_lossy=True,
            has_one_server=True,
        )
        for name, stream in (("input", app.INPUT), ("output", "Counts"))
    ),
    Scenario(
        "shm-full",
        "no room in /dev/shm of a worker",
        machines.shared_memory_full,
        needs_mounts=True,
    ),
    Scenario("clocks-off", "clocks of workers an hour off", machines.clocks_off, needs_clocks=True),
    Scenario("files-scarce", "a worker may open 8 more files", machines.files_scarce),
    Scenario(
        "records-foreign", "unreadable and foreign records in the buckets", machines.records_foreign
    ),
    Scenario("million-groups", "1.2 million groups in another app", machines.million_groups),
)
