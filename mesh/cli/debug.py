"""``mesh debug story``: what happened to an app, and why."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import typer

from mesh.cli.options import (
    AppArgument,
    CaOption,
    ContextOption,
    InsecureOption,
    OutputOption,
    PasswordOption,
    ServerOption,
    UserOption,
    connect,
)
from mesh.cli.output import Output, show_json

debug_commands = typer.Typer(no_args_is_help=True, help="What happened, and why.")


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(debug_commands, name="debug", rich_help_panel="Apps of a cluster")


@debug_commands.callback()
def _debug() -> None:
    """What happened, and why."""


@debug_commands.command("story")
def story(
    app: AppArgument,
    server: ServerOption = None,
    user: UserOption = None,
    password: PasswordOption = None,
    ca: CaOption = None,
    insecure: InsecureOption = None,
    context: ContextOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Tell what happened to an app, in order: who did what, and why.

    Times are the clocks of those who noted it, in UTC.

    Example: `mesh debug story Temperature`
    """
    with connect(server, user, password, ca, insecure, context) as client:
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
