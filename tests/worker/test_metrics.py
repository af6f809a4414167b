"""Metrics of a worker: sizes of stored states by instance and element, and the levels of apps.

Probes of managers and workers over real processes and a real server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from typing import TYPE_CHECKING

import httpx
import pyarrow as pa
import pytest

from mesh.errors import MeshError
from mesh.jetstream.server import free_port
from mesh.model.cluster import StatisticsLevel
from mesh.operators.base import State
from mesh.settings import WorkerSettings
from mesh.spark.instance_io import LocalState
from mesh.worker.metrics import Placed, WorkerValues, element_of, exposition, serving, state_sizes
from tests.support.agents import looking

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.agents import Cluster


BATCH = pa.record_batch({"a": list(range(100))})


def stored(path: Path, *pieces: str) -> int:
    """Store a state with these pieces; the bytes of one."""
    local = LocalState(path)
    local.put_pieces(State(dict.fromkeys(pieces, BATCH)))
    return local.piece_path(pieces[0]).stat().st_size


@pytest.mark.parametrize(
    ("piece", "element"),
    [
        ("tables/Seen/rows", ("table", "Seen")),
        ("window-Last/rows", ("window", "Last")),
        ("aggregation-Sums/day", ("aggregation", "Sums")),
        ("sums/window/3", ("query", "sums")),
    ],
)
def test_a_piece_belongs_to_an_element(piece: str, element: tuple[str, str]) -> None:
    assert element_of(piece) == element


def test_sizes_are_those_of_the_newest_run_of_the_epoch(tmp_path: Path) -> None:
    root = tmp_path / "A-g-1"
    stored(root / "4-0" / "0", "old/rows")
    stored(root / "5-0" / "0", "earlier/rows")
    for path in (root / "5-0").rglob("*.arrow"):
        os.utime(path, ns=(1, 1))
    size = stored(root / "apart-1" / "5-1" / "0", "sums/rows", "sums/more", "tables/Seen/rows")
    stored(root / "apart-1" / "5-1" / "1", "tables/Seen/rows")
    assert state_sizes(tmp_path, "A-g-1", 5) == {
        ("query", "sums"): 2 * size,
        ("table", "Seen"): 2 * size,
    }
    assert state_sizes(tmp_path, "A-g-1", 6) == {}
    assert state_sizes(tmp_path, "B-g-1", 5) == {}


def test_levels_decide_on_what_is_told(tmp_path: Path) -> None:
    levels = {"Off": StatisticsLevel.OFF, "Basic": StatisticsLevel.BASIC}
    levels["Detail"] = StatisticsLevel.DETAIL
    for app in levels:
        size = stored(tmp_path / f"{app}-g-1" / "5-0" / "0", "sums/rows")
    placed = [Placed(app, "g", f"{app}-g-1", 5, level) for app, level in levels.items()]
    text = exposition(WorkerValues("w1", True, placed, tmp_path, None, {"gc_s": 1.5})).decode()
    for app, has_whole in (("Off", False), ("Basic", True), ("Detail", True)):
        labels = f'app="{app}",group="g",instance="{app}-g-1"'
        assert (f"mesh_instance_state_bytes{{{labels}}} {size:.1f}" in text) is has_whole
        element = f'mesh_element_state_bytes{{{labels},kind="query",element="sums"}}'
        wanted = app == "Detail"
        assert (element in text or _sorted(element) in text) is wanted
    assert "mesh_jvm_gc_seconds_total 1.5" in text
    assert "mesh_jvm_heap_used_bytes" not in text
    assert 'mesh_worker_processes{kind="agent"} 1.0' in text


def _sorted(sample: str) -> str:
    """The labels in alphabetical order, as the client library writes them."""
    name, _, rest = sample.partition("{")
    return f"{name}{{{','.join(sorted(rest.rstrip('}').split(',')))}}}"


@pytest.mark.slow
async def test_a_worker_is_ready_when_the_cluster_counts_on_it_and_not_without_nats(
    cluster: Cluster,
) -> None:
    async with looking(cluster) as eye:
        port = free_port()
        cluster.manager("m1")
        cluster.worker("w1", MESH_WORKER_PROBE_PORT=str(port))
        await eye.until("worker", lambda: "w1" in eye.ready())
        assert eye.service.unready_reasons() == ()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:

            async def status(wanted: int) -> None:
                for _ in range(400):
                    if (await client.get("/health/ready")).status_code == wanted:
                        return
                    await asyncio.sleep(0.05)
                raise AssertionError(f"never {wanted}\n{cluster.logs()}")

            await status(200)
            assert (await client.get("/health/live")).json() == {"status": "up"}
            assert (await client.get("/other")).status_code == 404
            told = await client.get("/metrics")
            assert told.headers["content-type"].startswith("text/plain")
            assert 'mesh_worker_info{version="' in told.text
            assert "mesh_worker_ready 1.0" in told.text
            assert 'mesh_worker_memory_bytes{kind="agent"}' in told.text
            assert (await client.post("/health/ready")).status_code == 405
            cluster.nats.process.send_signal(signal.SIGSTOP)
            try:
                await status(503)
                # The view hears nothing, whether or not the lost connection was noticed.
                await eye.until("reasons", eye.service.unready_reasons)
                assert (await client.get("/health/live")).status_code == 200
            finally:
                cluster.nats.process.send_signal(signal.SIGCONT)
            await status(200)


async def test_a_client_that_sends_no_request_gets_no_answer_and_others_do() -> None:
    port = free_port()
    async with serving(WorkerSettings(probe_port=port)):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x" * 20_000)
        # With bytes of the client unread, the end of the connection is a reset.
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            ready = await client.get("/health/ready")
    assert ready.status_code == 503
    assert ready.json()["reasons"] == ["the worker has not reached NATS yet"]


async def test_a_taken_port_is_refused_with_its_name() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(MeshError, match=rf"can't listen on 127.0.0.1:{port}"):
            async with serving(WorkerSettings(probe_port=port)):
                raise AssertionError("it listens on a port of another process")
