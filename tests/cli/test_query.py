"""``mesh query`` against a small API: its forms, and its errors."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner, Result

from mesh.cli.commands import app
from tests.support.api import OPEN, FakeService, served


def run(*arguments: str) -> Result:
    async def scene() -> Result:
        async with served(FakeService(), OPEN) as api:
            given = ["query", *arguments, "--server", api.url]
            return await asyncio.to_thread(lambda: CliRunner().invoke(app, given))

    return asyncio.run(scene())


ASKED = ("Shop", "from T", "--min-position", "mesh-Shop-S=7")


def test_an_answer_is_a_table_json_or_csv() -> None:
    table = run(*ASKED)
    assert table.exit_code == 0
    assert table.output.split()[:4] == ["c0", "c1", "c2", "c3"]
    assert '{"mesh-Shop-S":7}' in table.output
    values = json.loads(run(*ASKED, "--output", "json").output)
    assert values["records"] == [["Shop", "from T", {"mesh-Shop-S": 7}, False]]
    lines = run("Shop", "from T", "--output", "csv", "--partial").output.splitlines()
    assert lines == ["c0,c1,c2,c3", "Shop,from T,{},true"]


@pytest.mark.parametrize("position", ["7", "=7", "s=", "s=x"])
def test_a_position_names_a_stream_and_a_sequence(position: str) -> None:
    assert run("Shop", "from T", "--min-position", position).exit_code == 2


def test_a_part_that_is_away_is_an_error() -> None:
    away = run("Shop", "from Away")
    assert away.exit_code == 1
    assert "MESH-A503" in away.output
