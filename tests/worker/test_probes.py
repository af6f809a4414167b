"""Probes of managers and workers over real processes and a real server."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from typing import TYPE_CHECKING

import httpx
import pytest

from mesh.errors import MeshError
from mesh.jetstream.server import free_port
from mesh.settings import WorkerSettings
from mesh.worker.probes import serving
from tests.support.agents import looking

if TYPE_CHECKING:
    from tests.support.agents import Cluster


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
