"""Checks of connectors by a manager and its workers."""

from __future__ import annotations

import asyncio
import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from mesh.manager import connector_checks
from mesh.model.cluster import ConnectorStatus, InstanceState, InstanceStatus, NodeRole
from mesh.plan.build import plan
from tests.support.agents import looking

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.agents import Cluster

pytestmark = pytest.mark.nats

IN_CLUSTER = """@App:name('Checked')
@source(type='file', file.uri='{directory}/in.csv', @map(type='csv'))
define stream S (k string, n int);
@sink(type='file', file.uri='{directory}/out.csv', append='false', @map(type='csv'))
@sink(type='file', file.uri='/etc/x', @map(type='csv'))
define stream T (k string, n int);
from S select k, n insert into T;
"""
SERVED = """@App:name('Served')
@source(type='http', receiver.url='http://127.0.0.1:8280/in', @map(type='json'))
define stream S (k string, n int);
define stream T (k string, n int);
from S select k, n insert into T;
"""


@pytest.mark.parametrize(
    ("app_name", "state", "is_problem"),
    [
        ("Served", InstanceState.RUNNING, False),
        ("Served", InstanceState.RETRYING, True),
        ("Other", InstanceState.RUNNING, True),
    ],
)
def test_an_address_that_the_app_itself_serves_is_no_problem(
    monkeypatch: pytest.MonkeyPatch, app_name: str, state: InstanceState, is_problem: bool
) -> None:
    url = "http://127.0.0.1:8280/in"
    own = ConnectorStatus("source http", state, url)
    status = InstanceStatus("i", app_name, "w2", 1, InstanceState.RUNNING, 0, connectors=(own,))
    found = {"statuses": [SimpleNamespace(value=status)], "assignments": [], "nodes": []}
    problem = "a source can't listen on 127.0.0.1:8280 [MESH-C133]: Address already in use."

    async def ask(*_: Any) -> list[dict[str, Any]]:
        return [{"worker": "w2", "number": 0, "endpoint": url, "problem": problem}]

    monkeypatch.setattr(connector_checks, "_ask", ask)
    snapshot: Any = SimpleNamespace(**found)
    client: Any = None
    (result,) = asyncio.run(connector_checks.check(client, plan(SERVED).spec, snapshot))
    assert result["problem"] == (problem if is_problem else "")


STORED = """@App:name('Stored')
define stream S (k string, n int);
define stream R (k string, n int);
@store(type='rdbms', datasource='SHOP') define table T (k string, n int);
@store(type='rdbms', datasource='SHOP') define table U (k string, n int);
@dist(execGroup='first') from S select k, n insert into T;
@dist(execGroup='second') from R select k, n insert into U;
"""


def test_a_store_is_checked_where_its_table_is() -> None:
    placed = SimpleNamespace(instance="Stored-first-1", worker="w2", stop=False)
    nodes = [
        SimpleNamespace(id=name, role=NodeRole.WORKER, ready=True) for name in ("w1", "w2", "w3")
    ]
    snapshot: Any = SimpleNamespace(
        assignments=[SimpleNamespace(value=placed)],
        nodes=[SimpleNamespace(value=node) for node in nodes],
    )
    requests = connector_checks.check_requests(plan(STORED).spec, snapshot)
    assert [(one.number, one.stream, one.worker) for one in requests] == [
        (0, "T", "w2"), (1, "U", "w1"),
    ]  # fmt: skip


@pytest.mark.extended
async def test_workers_open_what_they_would_run(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.csv").write_text("a,1\nb,x\n")
    (tmp_path / "out.csv").write_text("kept\n")
    text = IN_CLUSTER.format(directory=tmp_path)

    async with looking(cluster) as eye:
        nowhere = await eye.service.check(text)
        assert {one["problem"] for one in nowhere} == {"no worker is ready"}
        # Only the worker has the directory open, and only w2 takes sources.
        cluster.worker(
            "w1", MESH_RECEIVER_FILE_ROOTS=str(tmp_path), MESH_WORKER_TAKES_RECEIVERS="false"
        )
        cluster.worker("w2", MESH_RECEIVER_FILE_ROOTS=str(tmp_path))
        await eye.until("workers", lambda: {"w1", "w2"} <= set(eye.ready()), 40)
        found = await eye.service.check(text)
        assert [(one["number"], one["worker"], one["name"]) for one in found] == [
            (0, "w2", "source file"), (1, "w1", "sink file"), (2, "w1", "sink file"),
        ]  # fmt: skip
        assert found[0]["sample"] == [{"k": "a", "n": 1}]
        assert len(found[0]["refused"]) == 1
        assert not found[1]["problem"]
        assert "is not open to connectors" in found[2]["problem"]
        assert (tmp_path / "out.csv").read_text() == "kept\n"
        # A worker that is there no more says nothing.
        cluster.signal("w1", signal.SIGKILL)
        cluster.processes["w1"].wait()
        # The server may not have noticed yet.
        monkeypatch.setattr(connector_checks, "_ANSWER_S", 30.0)
        gone = await eye.service.check(text)
        assert any("does not answer" in one["problem"] for one in gone) or {
            one["worker"] for one in gone
        } == {"w2"}
