"""``mesh debug story``: the journal of an app with causes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from mesh.cli.client import CommandClient
from mesh.cli.options import AppArgument, OutputOption, takes_cluster
from mesh.cli.output import Output, show

if TYPE_CHECKING:
    from mesh.client import ClientContext
    from mesh.model.answers import StoryAnswer

debug_commands = typer.Typer(no_args_is_help=True, help="Events with their causes.")


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(debug_commands, name="debug", rich_help_panel="Apps of a cluster")


@debug_commands.callback()
def _debug() -> None:
    """Events with their causes."""


@debug_commands.command("story")
@takes_cluster
def story(app: AppArgument, *, at: ClientContext, output: OutputOption = Output.TEXT) -> None:
    """Show the events of an app in order, with actor and cause.

    Times are the clocks of the noting processes, in UTC.

    Example: `mesh debug story Temperature`
    """
    with CommandClient(at) as client:
        entries = client.story(app)
    show(output, entries, "\n".join(map(line, entries)))


def line(entry: StoryAnswer) -> str:
    """An entry as one line."""
    at = datetime.fromtimestamp(entry["at_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    cause = f": {entry['cause']}" if entry["cause"] else ""
    return f"{at}  {entry['by']} {entry['text']}{cause}"
