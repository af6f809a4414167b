"""``mesh fork``: another app over an app's input, from a place in the past."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mesh.cli.client import Client
from mesh.cli.options import AppArgument, OutputOption, takes_cluster
from mesh.cli.output import Output, pointing_at, read_source, show_json
from mesh.cli.variables import VarOption, given_variables

if TYPE_CHECKING:
    from mesh.cli.context import Context

PANEL = "An app's past"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel=PANEL)(fork)


@takes_cluster
def fork(
    app: AppArgument,
    other: Annotated[str, typer.Option("--as", metavar="NAME", help="Name of the fork.")],
    text: Annotated[
        Path | None,
        typer.Option("--text", metavar="FILE", help="Its SiddhiQL; that of the app by default."),
    ] = None,
    begin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="start, a sequence, a time, backup (the newest) or a backup's revision.",
        ),
    ] = "start",
    until: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="Last sequence to read, or a time; no end by default."),
    ] = None,
    sinks: Annotated[
        bool, typer.Option("--sinks/--no-sinks", help="Whether its sinks send to the outside.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait until it runs; 0 does not wait.")
    ] = 60.0,
    var: VarOption = None,
    *,
    at: Context,
    output: OutputOption = Output.TEXT,
) -> None:
    """Start another app over the input of an app, from a place in the past.

    The fork reads the app's input streams, which stay as they are, and publishes to subjects of its
    own. It begins with the app's state of that place where a backup has it and the text fits it,
    otherwise with the first message of the log; the answer says which.

    Example: `mesh fork Shop --as ShopNext --text next.siddhi`
    """
    given = {"as": other, "from": begin, "until": until, "sinks": "true" if sinks else "false"}
    which = {name: value for name, value in given.items() if value is not None}
    with Client(at) as client:
        done = _forked(client, app, text, which, given_variables(var), output)
        if timeout:
            status = client.wait_running(other, timeout)
            done |= {"status": status, "running": status["state"] == "running"}
    if output is Output.JSON:
        show_json(done)
    else:
        typer.echo(describe_fork(done, begin))
    if not done.get("running", True):
        raise typer.Exit(1)


def _forked(
    client: Client,
    app: str,
    file: Path | None,
    which: dict[str, str],
    given: dict[str, str],
    output: Output,
) -> dict[str, Any]:
    from mesh.language.substitution import substitute, variables_for

    if file is None:
        return client.fork(app, None, **which)
    text = read_source(file)
    with pointing_at(file, text, output):
        return client.fork(app, substitute(text, variables_for(text, given)), **which)


def describe_fork(done: dict[str, Any], begin: str) -> str:
    """The outcome of a fork in sentences."""
    place = f"the state of backup {done['backup']}" if done["backup"] else f"{begin}, no state"
    lines = [f'app "{done["app"]}" is a fork of "{done["of"]}": it begins with {place}']
    if done["copied"]:
        lines.append(f"  {done['copied']} messages between its groups were copied")
    lines += [f"  {note}" for note in done["notes"]]
    status = done.get("status")
    if status is not None:
        reason = f": {status['reason']}" if status.get("reason") else ""
        lines.append(f"  it is {status['state']}{reason}")
    return "\n".join(lines)
