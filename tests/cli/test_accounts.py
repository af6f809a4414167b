"""``mesh user``, ``mesh token`` and ``mesh audit`` against a manager."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from mesh.cli.commands import app
from tests.support.manager_api import manager_api

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer


@pytest.mark.slow
@pytest.mark.nats
def test_users_and_tokens_are_made_used_and_removed(nats_server: NatsServer, alone: Path) -> None:
    with manager_api(nats_server, alone) as url:

        def mesh(*arguments: str, fails: bool = False, **environment: str) -> str:
            known = {
                "MESH_SERVER": url,
                "MESH_USER": "ada",
                "MESH_PASSWORD": "pw",
                "COLUMNS": "200",
            }
            result = CliRunner().invoke(app, list(arguments), env={**known, **environment})
            assert (result.exit_code != 0) == fails, result.output
            return result.stdout + result.stderr

        arguments = ("user", "add", "eve", "--may", "viewer", "--apps", "Shop*")
        assert "for apps Shop*" in mesh(*arguments, MESH_NEW_PASSWORD="twelve letters")
        assert "eve" in mesh("user", "list")
        eve: dict[str, Any] = {"MESH_USER": "eve", "MESH_PASSWORD": "twelve letters"}
        mesh("apps", **eve)
        assert "MESH-A403" in mesh("nodes", fails=True, **eve)
        token = mesh("token", "add", "reports", "--days", "1", **eve).strip()
        assert token.startswith("mesh_")
        with_token: dict[str, Any] = {"MESH_TOKEN": token}
        mesh("apps", **with_token)
        (listed,) = json.loads(mesh("token", "list", "-o", "json"))
        assert (listed["user"], listed["name"]) == ("eve", "reports")
        mesh("token", "rm", listed["id"])
        assert "MESH-A401" in mesh("apps", fails=True, **with_token)
        mesh("user", "rm", "eve")
        assert "MESH-A401" in mesh("apps", fails=True, **eve)
        seen: list[str] = []
        while len(seen) < 5:
            entries = json.loads(mesh("audit", "-o", "json"))
            seen = [
                f"{one['user']} {one['method']} {one['path']} {one['status']}" for one in entries
            ]
        assert seen[:4] == [
            "ada POST /users 201",
            "eve GET /nodes 403",
            "eve POST /tokens 201",
            f"ada DELETE /tokens/{listed['id']} 200",
        ]
        assert "twelve letters" not in str(entries)
        assert token not in str(entries)
        assert mesh("audit", "--of", "eve").count("eve") >= 2


def test_a_user_is_added_with_the_password_of_the_environment(alone: Path) -> None:
    runner = CliRunner()
    for words in ("added to", "new password"):
        said = runner.invoke(
            app, ["user", "add", "ada", "--file", "u"], env={"MESH_NEW_PASSWORD": "twelve letters"}
        )
        assert said.exit_code == 0
        assert words in said.output
    assert (alone / "u").read_text().startswith("ada:$argon2id$")
