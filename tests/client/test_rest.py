"""The clients over the API of a service in memory: the same calls, answers and errors in both."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from mesh import client
from mesh.model.operations import CLIENT
from tests.support.api import OPEN, TEXT, FakeService, served

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WRONG = f"{TEXT}\n!"


async def play(calls: Callable[[client.Client], Any]) -> Any:
    """The result of calls that block, against a service with an app."""
    service = FakeService(texts={"Shop": TEXT})
    service.runs.set()
    async with served(service, OPEN) as api:
        with client.Client(server=api.url) as mesh:
            return await asyncio.to_thread(calls, mesh)


async def test_both_clients_have_each_call_of_the_table() -> None:
    async with served(FakeService(texts={"Shop": TEXT}), OPEN) as api:
        with client.Client(server=api.url) as blocking:
            async with client.AsyncClient(server=api.url) as other:
                names = [name for table in CLIENT for name in vars(table) if name[0] != "_"]
                for name in names:
                    one, two = getattr(blocking, name), getattr(other, name)
                    assert inspect.signature(one) == inspect.signature(two), name
                    assert one.__doc__ == two.__doc__, name
                    assert "self" not in inspect.signature(one).parameters, name
                assert await other.status("Shop") == await asyncio.to_thread(
                    blocking.status, "Shop"
                )


async def test_an_app_is_planned_deployed_and_waited_for() -> None:
    def calls(mesh: client.Client) -> Any:
        planned = mesh.plan(TEXT, reset=["sums", "means"])
        done = mesh.deploy(TEXT)
        state = mesh.wait_running("Shop", 5)["state"]
        return planned, done["is_new"], state, [one["app"] for one in mesh.apps()]

    planned, is_new, state, apps = await play(calls)
    assert planned == {"app": "Shop", "is_new": False, "reset": ["sums", "means"]}
    assert (is_new, state, apps) == (False, "running", ["Shop"])


async def test_values_reach_the_service_as_they_are() -> None:
    def calls(mesh: client.Client) -> Any:
        at = {"mesh-Shop-Orders": 7}
        return (
            mesh.query("Shop", "from T select *", min_position=at, partial=True)["records"],
            mesh.fork("Shop", "Next", begin="2026-11-21T20:00:00Z")["app"],
            mesh.what_if(TEXT, at_rate=["1k", "2k"], keys=2_000_000),
            mesh.compare("Shop", "Next", stream=["A", "B"], key=["id"])["streams"],
        )

    records, fork, needs, streams = await play(calls)
    assert records == [["Shop", "from T select *", {"mesh-Shop-Orders": 7}, True]]
    assert fork == "Next"
    assert needs == {"rates": ["1k", "2k"], "keys": 2_000_000, "cores": 0}
    assert streams == ["A", "B"]


async def test_a_refusal_is_one_error_with_all_its_parts() -> None:
    def refusal(call: Callable[..., Any], *arguments: Any) -> client.MeshError:
        with pytest.raises(client.MeshError) as raised:
            call(*arguments)
        return raised.value

    def calls(mesh: client.Client) -> list[client.MeshError]:
        return [
            refusal(mesh.create, WRONG),
            refusal(mesh.plan, WRONG),
            refusal(mesh.status, "Other"),
            refusal(mesh.scale, "Shop", "sums", 100_000),
        ]

    fault, several, missing, bound = await play(calls)
    assert (fault.code, fault.message, fault.hint) == ("MESH-L100", "no app", "Write one.")
    assert fault.position.line == 1
    assert [one.code for one in client.all_errors(several)] == ["MESH-L100", "MESH-L101"]
    assert missing.code == "MESH-A404"
    assert (bound.code, bound.message[:20]) == ("MESH-A400", 'parameter "parallel"')


async def test_no_manager_and_no_address_are_errors_of_the_same_kind(alone: Path) -> None:
    with (
        client.Client(server="http://127.0.0.1:9") as mesh,
        pytest.raises(client.MeshError) as raised,
    ):
        mesh.apps()
    assert raised.value.code == "MESH-U112"
    with pytest.raises(client.MeshError) as unnamed:
        client.Client()
    assert unnamed.value.code == "MESH-U111"


def test_importing_it_loads_nothing_heavy_and_fixes_no_names() -> None:
    program = (
        "import sys; from mesh import client\n"
        "heavy = {'pyspark', 'pyarrow', 'numpy', 'pandas', 'httpx', 'nats', 'mesh.plan',\n"
        "         'mesh.model.names', 'starlette'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
