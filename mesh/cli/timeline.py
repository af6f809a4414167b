"""``mesh fork`` and ``mesh why``: an app's past, run again and explained."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from mesh.cli.client import Client
from mesh.cli.options import AppArgument, OutputOption, takes_cluster
from mesh.cli.output import Output, pointing_at, read_source, show_json
from mesh.cli.variables import VarOption, given_variables

if TYPE_CHECKING:
    from mesh.cli.context import Context

PANEL = "An app's past"


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (fork, why):
        app.command(rich_help_panel=PANEL)(command)


@takes_cluster
def why(
    app: AppArgument,
    stream: Annotated[str, typer.Argument(help="Stream of the app.", metavar="STREAM")],
    sequence: Annotated[
        int, typer.Argument(min=1, help="Sequence of the message in the stream's channel.")
    ],
    index: Annotated[
        int, typer.Option(min=0, help="Place of the event in its message, from 0.")
    ] = 0,
    *,
    at: Context,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the inputs of an event: those without which it would be another one, or none.

    They are found by running the groups again over the log, back to the events that came from
    outside.

    Example: `mesh why Shop DearOrders 17`
    """
    with Client(at) as client:
        found = client.why(app, stream, sequence, index)
    if output is Output.JSON:
        show_json(found)
    else:
        typer.echo("\n".join(lineage_lines(found)))


def lineage_lines(cause: dict[str, Any], depth: int = 0) -> list[str]:
    """A lineage as an indented list, the inputs of an event below it."""
    at = datetime.fromtimestamp(cause["time_ms"] / 1000, UTC)
    shown = f"{at:%Y-%m-%d %H:%M:%S}.{cause['time_ms'] % 1000:03d}"
    place = f"{cause['stream']} {cause['sequence']}"
    place += f".{cause['index']}" if cause["index"] else ""
    by = f"  by {cause['group']}" if cause["group"] else ""
    event = orjson.dumps(cause["event"]).decode()
    lines = [f"{'  ' * depth}{place}  {shown}  {event}{by}"]
    for one in cause["inputs"]:
        lines += lineage_lines(one, depth + 1)
    below = "  " * (depth + 1)
    if cause["more"]:
        lines.append(f"{below}and {cause['more']} more")
    if cause["note"]:
        lines.append(f"{below}{cause['note']}")
    return lines


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
