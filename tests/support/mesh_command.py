"""The command ``mesh`` in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.testing import CliRunner

from mesh.cli.commands import app

if TYPE_CHECKING:
    from typer.testing import Result


def mesh(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))
