"""``mesh migrate``: the page, directories, deployments, and what is never written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import yaml
from typer.testing import CliRunner

from mesh.cli.commands import app
from mesh.plan.build import plan
from mesh.settings import load
from tests.support.deployment import DEPLOYMENT
from tests.support.pages import PAGES, passages

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = """@source(ref='orders', @map(type='json'))
define stream Orders (id string);
@store(type='rdbms', datasource='ORDERS_DB') define table Seen (id string);
from Orders select id insert into Seen;
"""
FAR = "define stream S (a int); from S select nlp:x(a) as b insert into T;"


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["migrate", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_the_page_is_followed(alone: Path) -> None:
    (page,) = (one for one in PAGES if one.name == "migrate.md")
    blocks = [one.text for one in passages(page) if "▶" not in one.text]
    written, refused, migrated, shown = blocks[:4]
    (alone / "old").mkdir()
    (alone / "old/heat.siddhiql").write_text(f"{written}\n")
    assert CliRunner().invoke(app, ["validate", "old/heat.siddhiql"]).stderr == f"{refused}\n"
    code, output, errors = run("old/heat.siddhiql", "--write", "new")
    assert (code, output, errors) == (0, f"{shown}\n", "")
    assert (alone / "new/heat.siddhi").read_text() == f"{migrated}\n"
    assert plan(migrated).spec.name == "Heat"


def test_a_directory_has_a_table_and_settings_that_a_mesh_loads(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    (old / "conf").mkdir(parents=True)
    (old / "conf/deployment.yaml").write_text(DEPLOYMENT)
    (old / "conf/other.yaml").write_text("a: 1\n")
    (old / "orders.siddhi").write_text(ORDERS)
    (old / "far.siddhi").write_text(FAR)
    code, output, errors = run(old, "--write", new)
    assert code == 1
    assert 'not supported yet: function "nlp:x"' in errors
    assert "3 files, 1 not deployable" in output
    assert "hunter2" not in output + errors
    settings = load(new / "conf/mesh.yaml")
    assert settings.stores.shard_id == "node-1"
    assert settings.state.backups_kept == 3
    assert settings.manager.min_workers == 2
    assert settings.receiver.refs_file == "refs.yaml"
    assert yaml.safe_load((new / "conf/refs.yaml").read_text()) == {
        "orders": {
            "type": "http",
            "receiver.url": "http://0.0.0.0:8280/orders",
            "basic.auth.enabled": "true",
            "basic.auth.password": "${secret:orders_pw}",
        }
    }
    sources = yaml.safe_load((new / "conf/sources.yaml").read_text())
    assert list(sources) == ["ORDERS_DB"]
    assert (new / "conf/sources.yaml").stat().st_mode & 0o077 == 0
    assert (new / "orders.siddhi").read_text() == ORDERS
    assert not (new / "conf/other.yaml").exists()


def test_a_file_that_was_edited_is_not_replaced(tmp_path: Path) -> None:
    old, new = tmp_path / "a.siddhi", tmp_path / "new"
    old.write_text(ORDERS.replace("ref='orders'", "type='inMemory'"))
    assert run(old, "--write", new)[0] == 0
    assert run(old, "--write", new)[0] == 0
    (new / "a.siddhi").write_text("edited")
    code, _, errors = run(old, "--write", new)
    assert code == 1
    assert "MESH-U164" in errors
    assert (new / "a.siddhi").read_text() == "edited"
    assert run(tmp_path, "--write", tmp_path)[0] == 2


def test_json_has_texts_notes_and_errors(tmp_path: Path) -> None:
    path = tmp_path / "a.siddhi"
    path.write_text(ORDERS)
    code, output, _ = run(path, "--output", "json")
    values = json.loads(output)
    assert code == 1
    assert values["deployable"] is False
    (one,) = values["files"]
    assert one["app"] == "a"
    assert one["files"] == {"a.siddhi": ORDERS}
    assert one["notes"][0]["text"] == 'the app has no name, and is called "a"'
    assert one["errors"][0]["code"] == "MESH-L223"
