"""``mesh backfill`` against a manager, without workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest
from typer.testing import CliRunner

from mesh.cli.backfill import inputs_of
from mesh.cli.commands import app
from mesh.model.history import HistoryInput
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
        # The same by the options of deploy.
        again = ("deploy", "late.siddhi", "--timeout", "0", "--time", "at", "--backfill")
        assert "MESH-A409" in mesh(*again, "Readings=old", fails=True)
        (tmp_path / "later.siddhi").write_text(CHAIN.format(name="Later", source=""))
        said = mesh("deploy", "later.siddhi", *again[2:], "Readings=old")
        assert "has seen 20 rows of Readings" in said
        assert "mesh-Later-Readings is read on after 0" in said


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("backfill", "a.siddhi", "S"), "each stream has a path"),
        (("backfill", "a.siddhi", "S", "old"), "stream S has none"),
        (("backfill", "a.siddhi", "S", "old", "--time", "T=at"), 'stream "T" has no past'),
        (
            ("backfill", "a.siddhi", "S", "x", "T", "y", "--time", "at", "--until", "7"),
            "STREAM=SEQ",
        ),
        (("deploy", "a.siddhi", "--backfill", "old", "--time", "at"), "STREAM=PATH"),
        (("deploy", "a.siddhi", "--backfill", "S=x", "--time", "at", "--replace"), "one new app"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(arguments: tuple[str, ...], why: str) -> None:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert why in result.output


def test_several_streams_have_columns_and_ends_of_their_own() -> None:
    found = inputs_of([("S", "x"), ("T", "y#t")], ["at", "T=paid_at"], ["S=7"])
    assert found == [HistoryInput("S", "x", "at", "7"), HistoryInput("T", "y#t", "paid_at")]
