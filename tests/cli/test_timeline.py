"""``mesh fork``, ``compare``, ``promote`` and ``why`` against a manager, without workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mesh.cli.commands import app
from tests.support.manager_api import manager_api

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

TEXT = """@App:name('Shop')
define stream Orders (item string, price double);
@dist(execGroup='dear') from Orders[price > 100.0] select item, price insert into Dear;
"""


@pytest.mark.thorough
def test_an_apps_past_from_the_command_line(nats_server: NatsServer, alone: Path) -> None:
    (alone / "shop.siddhi").write_text(TEXT)
    (alone / "next.siddhi").write_text(TEXT.replace("100.0", "200.0"))

    with manager_api(nats_server, alone) as url:

        def mesh(*arguments: str, fails: bool = False, given: str | None = None) -> str:
            known = {
                "MESH_SERVER": url,
                "MESH_USER": "ada",
                "MESH_PASSWORD": "pw",
                "MESH_NATS_URL": nats_server.url,
                "COLUMNS": "200",
            }
            result = CliRunner().invoke(app, list(arguments), env=known, input=given)
            assert (result.exit_code != 0) == fails, result.output
            return result.stdout + result.stderr

        mesh("deploy", "shop.siddhi", "--timeout", "0")
        said = mesh(
            "fork", "Shop", "--as", "Next", "--text", "next.siddhi", "--from", "start",
            "--timeout", "0",
        )  # fmt: skip
        assert 'app "Next" is a fork of "Shop": it begins with start, no state' in said
        assert "MESH-A404" in mesh("fork", "Gone", "--as", "Other", fails=True)
        # A name that has another form in paths and keys.
        said = mesh(
            "fork", "Shop", "--as", "the next", "--from", "start", "--timeout", "1", fails=True
        )
        assert 'is a fork of "Shop": it begins with start, no state' in said
        assert "no worker is there" in said
        assert "Dear: 0 same" in mesh("compare", "Shop", "the next", "--timeout", "0")
        mesh("undeploy", "the next")
        # No worker runs them: a client stands in for the app.
        mesh("publish", "Shop", "Dear", given='{"item": "lamp", "price": 120.0}\n')
        assert mesh("why", "Shop", "Dear", "1").startswith("Dear 1  ")
        assert "MESH-A404" in mesh("why", "Shop", "Dear", "2", fails=True)
        said = mesh("compare", "Shop", "Next", "--timeout", "0", fails=True)
        assert "Dear: 0 same, 0 new, 1 gone, 0 changed" in said
        assert "first difference, in Dear: gone" in said
        said = mesh("promote", "Next", "--replaces", "Shop", "--timeout", "0")
        assert 'app "Shop" has the text of "Next"; the fork is removed' in said
        assert "MESH-C154" in mesh("promote", "Shop", fails=True)
