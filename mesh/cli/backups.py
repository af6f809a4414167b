"""``mesh backup``, ``backups`` and ``restore``: create, list and restore backups of apps."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from mesh.cli.client import Client
from mesh.cli.options import AppArgument, OutputOption, takes_cluster
from mesh.cli.output import Output, show_json, show_table

if TYPE_CHECKING:
    from mesh.cli.context import Context

_PANEL = "Apps of a cluster"


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (backup, backups, restore):
        app.command(rich_help_panel=_PANEL)(command)


@takes_cluster
def backup(app: AppArgument, *, at: Context, output: OutputOption = Output.TEXT) -> None:
    """Keep a copy of an app's state, with how far it has read; the app runs on.

    Example: `mesh backup Temperature`
    """
    with Client(at) as client:
        made = client.backup(app)
    if output is Output.JSON:
        show_json(made)
        return
    size = f"{made['snapshots']} snapshots, {made['bytes'] / 1e6:.1f} MB"
    typer.echo(f'app "{app}" is backed up as revision {made["revision"]}: {size}')


@takes_cluster
def backups(
    app: AppArgument,
    delete: Annotated[
        str | None, typer.Option(help="Delete this revision, or 'all' of them.")
    ] = None,
    *,
    at: Context,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the backups of an app, oldest first, also when it is undeployed; or delete some.

    Example: `mesh backups Temperature`
    """
    with Client(at) as client:
        if delete is not None:
            done = client.delete_backups(app, None if delete == "all" else delete)
            if output is Output.JSON:
                show_json(done)
            else:
                typer.echo(f"{done['deleted']} deleted")
            return
        found = client.backups(app)
    if output is Output.JSON:
        show_json(found)
        return
    rows = [
        (
            one["revision"],
            datetime.fromtimestamp(one["at_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
            one["by"],
            one["snapshots"],
            f"{one['bytes'] / 1e6:.1f}",
        )
        for one in found
    ]
    show_table(("revision", "made at", "by", "snapshots", "MB"), rows)


@takes_cluster
def restore(
    app: AppArgument,
    revision: Annotated[
        str | None, typer.Option(help="Which backup; the newest if nothing is said.")
    ] = None,
    before: Annotated[
        str | None,
        typer.Option("--at", help="The newest backup made by then: a time, as 2026-11-21T20:30Z."),
    ] = None,
    other: Annotated[
        str | None,
        typer.Option("--as", help="Start a new app of this name with the state instead."),
    ] = None,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay/--no-replay",
            help="Whether the app reads again what has come since, and puts it out again.",
        ),
    ] = True,
    *,
    at: Context,
    output: OutputOption = Output.TEXT,
) -> None:
    """Put the state of a backup back: the app stops, goes back to it, and reads again from there.

    What it has put out since the backup comes a second time. A new app (`--as`) has channels of its
    own, which are empty.

    Example: `mesh restore Temperature --at 2026-11-21T20:30Z`
    """
    given = {"revision": revision, "before": before, "as": other}
    which = {name: value for name, value in given.items() if value is not None}
    with Client(at) as client:
        done = client.restore(app, **which, replay="true" if replay else "false")
    if output is Output.JSON:
        show_json(done)
        return
    told = f"{done['behind']} messages are read again" if done["replays"] else "nothing is replayed"
    typer.echo(f'app "{done["app"]}" goes on from revision {done["revision"]}: {told}')
