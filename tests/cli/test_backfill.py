"""``mesh backfill`` against a manager, without workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest
from typer.testing import CliRunner

from mesh.cli.commands import app
from tests.support.history import CHAIN, events, parquet
from tests.support.manager_api import manager_api

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]


def test_an_app_is_deployed_after_its_history(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "late.siddhi").write_text(CHAIN.format(name="Late", source=""))
    parquet(tmp_path / "history" / "old", events(20))

    with manager_api(nats_server, tmp_path) as url:

        def mesh(*arguments: str, fails: bool = False) -> str:
            known = {"MESH_SERVER": url, "MESH_USER": "ada", "MESH_PASSWORD": "pw"}
            result = CliRunner().invoke(app, [*arguments], env={**known, "COLUMNS": "200"})
            assert (result.exit_code != 0) == fails, result.output
            return result.stdout if not fails else result.output + result.stderr

        asked = ("backfill", "late.siddhi", "Readings", "--timeout", "0", "--time")
        assert "MESH-C160" in mesh(
            "backfill", "late.siddhi", "Totals", "old", "--time", "at", fails=True
        )
        done = orjson.loads(mesh(*asked, "at", "old", "--output", "json"))
        assert (done["app"], done["rows"], done["later"]) == ("Late", 20, 0)
        assert done["groups"] == ["clean", "recent", "last"]
        assert done["cuts"] == {"mesh-Late-Readings": 0}
        assert "Late" in mesh("apps")
        assert "MESH-A409" in mesh(*asked, "at", "old", fails=True)
