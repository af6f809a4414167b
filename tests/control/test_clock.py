"""Clocks of machines that are an hour off, and jump: nothing is placed again, nobody is gone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from mesh.control import membership
from mesh.control.lifecycle import AppState
from mesh.model.cluster import NodeRole
from tests.support.agents import APP, MANAGER, WORKER, looking

if TYPE_CHECKING:
    from tests.support.agents import Cluster, Eye

#: Debian's package libfaketime, or a file that a variable names.
LIBRARY: Final = os.environ.get(
    "FAKETIME_LIBRARY", "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
)


def _beat(eye: Eye) -> int:
    """The last heartbeat of w1."""
    record = eye.view.snapshot().node(NodeRole.WORKER, "w1")
    return record.value.beat if record is not None else 0


@pytest.mark.long
@pytest.mark.nats
@pytest.mark.skipif(not Path(LIBRARY).exists(), reason="libfaketime is not installed")
async def test_clocks_that_jump_by_an_hour_move_nothing(cluster: Cluster, tmp_path: Path) -> None:
    offset = tmp_path / "offset"
    offset.write_text("+0")
    faked = {
        "LD_PRELOAD": LIBRARY,
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        # A clock that is set leaves this one alone.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    cluster.start("m1", MANAGER, MESH_MANAGER_ID="m1", **faked)
    state = str(cluster.directory / "state-w1")
    cluster.start("w1", WORKER, MESH_WORKER_ID="w1", MESH_WORKER_STATE_DIR=state, **faked)
    cluster.manager("m2")
    cluster.worker("w2")
    async with looking(cluster) as eye:
        await eye.until("workers", lambda: {"w1", "w2"} <= eye.ready())
        await eye.service.deploy(APP)
        assert (await eye.service.wait_running("Two", 60)).state is AppState.RUNNING
        before = eye.epochs(), eye.placed(), eye.leader()
        for text in ("+3600", "-3600", "+0"):
            offset.write_text(text)
            # Twice the time after which a silent worker is gone.
            upto = _beat(eye) + 3 * membership.BEATS_PER_TERM

            def has_beaten(upto: int = upto) -> bool:
                assert (eye.epochs(), eye.placed(), eye.leader()) == before, cluster.logs()
                return _beat(eye) >= upto

            await eye.until("heartbeats", has_beaten)
            assert (await eye.service.status("Two")).state is AppState.RUNNING
        assert all(process.poll() is None for process in cluster.processes.values())
