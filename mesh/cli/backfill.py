"""``mesh backfill``: an app that begins with the states of its past."""

from __future__ import annotations

import contextlib
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mesh.cli.client import Client
from mesh.cli.options import OutputOption, takes_cluster
from mesh.cli.output import Output, pointing_at, read_source, show_json
from mesh.cli.timeline import PANEL
from mesh.cli.variables import VarOption, given_variables
from mesh.errors import MeshError

if TYPE_CHECKING:
    from mesh.cli.context import Context

#: Interval of the lines of progress, seconds.
_TELL_S: Final = 1.0


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel=PANEL)(backfill)


@takes_cluster
def backfill(
    file: Annotated[Path, typer.Argument(help="SiddhiQL of a new app.", metavar="FILE")],
    stream: Annotated[str, typer.Argument(help="Its input stream.", metavar="STREAM")],
    path: Annotated[
        str,
        typer.Argument(
            help="Parquet or CSV file, or a directory of them, in the setting manager.history_dir.",
            metavar="PATH",
        ),
    ],
    column: Annotated[
        str,
        typer.Option("--time", metavar="COLUMN", help="Column with the times of the events."),
    ],
    until: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="End of the files in the live stream: the last sequence that they include, or a "
            "time before which their rows are read. By default they end before its first message.",
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(help="Seconds to wait until it runs after its history; 0 does not wait."),
    ] = 60.0,
    var: VarOption = None,
    *,
    at: Context,
    output: OutputOption = Output.TEXT,
) -> None:
    """Deploy an app that has seen the past: files of events, up to an exact place of its stream.

    The files are run through the app's groups as a batch, without NATS.  The states that they give
    are those from which the app starts; it reads the live stream on after the end of the files,
    without a gap or an overlap.  Outputs of the past are not published.

    Example: `mesh backfill shop.siddhi Orders orders/2025 --time ordered_at`
    """
    from mesh.language.substitution import substitute, variables_for

    text = read_source(file)
    which = {"path": path, "stream": stream, "time": column, **({"until": until} if until else {})}
    with Client(at) as client:
        with pointing_at(file, text, output):
            text = substitute(text, variables_for(text, given_variables(var)))
            done = _run(client, at, text, which)
        if timeout:
            status = client.wait_running(done["app"], timeout)
            done |= {"status": status, "running": status["state"] == "running"}
    if output is Output.JSON:
        show_json(done)
    else:
        typer.echo(describe(done))
    if not done.get("running", True):
        raise typer.Exit(1)


def _run(client: Client, at: Context, text: str, which: dict[str, str]) -> dict[str, Any]:
    """Wait for the answer, and show the progress meanwhile."""
    from mesh.language.parser import parse_app
    from mesh.plan.groups import app_name

    name = app_name(parse_app(text))
    with Client(at) as other, ThreadPoolExecutor(1) as runner:
        asked = runner.submit(client.backfill, text, **which)
        said = ""
        while not wait([asked], _TELL_S).done:
            with contextlib.suppress(MeshError):
                reason = other.status(name).get("reason") or ""
                if reason != said:
                    said = reason
                    _show(f'app "{name}": {reason}')
        if said and sys.stderr.isatty():
            typer.echo("", err=True)
        return asked.result()


def _show(line: str) -> None:
    """A line of progress: on a terminal it replaces the one before."""
    if sys.stderr.isatty():
        typer.echo(f"\r{line}\x1b[K", err=True, nl=False)
    else:
        typer.echo(line, err=True)


def describe(done: dict[str, Any]) -> str:
    """The outcome in sentences."""
    rate = done["rows"] / max(done["seconds"], 1e-3)
    seen = f'app "{done["app"]}" has seen {done["rows"]:,} rows of {done["stream"]}'
    emitted = f"{done['emitted']:,} events that its groups made of them are not published"
    lines = [f"{seen} in {done['seconds']:.1f} s ({rate:,.0f} rows/s); {emitted}"]
    if done["later"]:
        lines.append(f"  {done['later']:,} rows were later, and are left to the live stream")
    if done["failed"]:
        lines.append(f"  a query failed on {done['failed']:,} events")
    lines += [f"  {name} is read on after {last}" for name, last in sorted(done["cuts"].items())]
    status = done.get("status")
    if status is not None:
        reason = f": {status['reason']}" if status.get("reason") else ""
        lines.append(f"  it is {status['state']}{reason}")
    return "\n".join(lines)
