"""``mesh endpoints``: sources and sinks of all apps, from a manager's API."""

from __future__ import annotations

from functools import partial

import anyio
import anyio.to_thread
from typer.testing import CliRunner

from mesh.cli.commands import app
from tests.support.api import OPEN, served
from tests.support.monitored import Cluster


def said(*arguments: str) -> list[str]:
    """The words of the rows that the command prints, without those of the heading."""

    async def run() -> str:
        async with served(Cluster(), OPEN) as api:
            ask = partial(CliRunner().invoke, env={"MESH_SERVER": api.url, "COLUMNS": "200"})
            answer = await anyio.to_thread.run_sync(ask, app, ["endpoints", *arguments])
        assert answer.exit_code == 0, answer.output
        return str(answer.stdout)

    return [" ".join(line.split()) for line in anyio.run(run).splitlines() if "https:" in line]


def test_endpoints_of_all_apps_have_workers_addresses_and_errors() -> None:
    failing = "Shop Shop-sums-1 sink http 2 https://b.example/in w1 retrying 7 refused"
    working, broken = said()
    assert working.startswith("Shop Shop-sums-1 sink http 1 https://a.example/in w1 running 0")
    assert broken == failing
    assert said("--failing") == [failing]
