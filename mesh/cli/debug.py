"""``mesh debug story``: the history of an app, with causes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from mesh.cli.client import Client
from mesh.cli.options import AppArgument, OutputOption, takes_cluster
from mesh.cli.output import Output, show_json

if TYPE_CHECKING:
    from mesh.cli.context import Context

debug_commands = typer.Typer(no_args_is_help=True, help="What happened, and why.")


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(debug_commands, name="debug", rich_help_panel="Apps of a cluster")


@debug_commands.callback()
def _debug() -> None:
    """What happened, and why."""


@debug_commands.command("story")
@takes_cluster
def story(app: AppArgument, *, at: Context, output: OutputOption = Output.TEXT) -> None:
    """Tell what happened to an app, in order: who did what, and why.

    Times are the clocks of those who noted it, in UTC.

    Example: `mesh debug story Temperature`
    """
    with Client(at) as client:
        found = client.story(app)
    if output is Output.JSON:
        show_json(found)
        return
    for entry in found:
        typer.echo(line(entry))


def line(entry: dict[str, Any]) -> str:
    """An entry as one line."""
    at = datetime.fromtimestamp(entry["at_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    cause = f": {entry['cause']}" if entry["cause"] else ""
    return f"{at}  {entry['by']} {entry['text']}{cause}"
