"""``mesh connectors``: types, and their options."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from mesh.cli.commands import app


def test_the_command_lists_connectors_and_options() -> None:
    runner = CliRunner()
    listed = runner.invoke(app, ["connectors"]).output
    assert "http" in listed
    assert "exactly once" in listed
    assert "publisher.url" in runner.invoke(app, ["connectors", "http"]).output
    found = json.loads(runner.invoke(app, ["connectors", "http", "-o", "json"]).output)
    assert {one["role"] for one in found} == {"source", "sink"}
    assert "#### sink `file`" in runner.invoke(app, ["connectors", "-o", "markdown"]).output
    unknown = runner.invoke(app, ["connectors", "htp"])
    assert unknown.exit_code == 1
