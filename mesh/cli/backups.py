"""``mesh backup``, ``backups`` and ``restore``: copies of apps' states."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from mesh.cli.client import CommandClient
from mesh.cli.options import AppArgument, OutputOption, app_token, takes_cluster
from mesh.cli.output import Output, show, show_rows

if TYPE_CHECKING:
    from mesh.client import ClientContext

_PANEL = "Apps of a cluster"


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (backup, backups, restore):
        app.command(rich_help_panel=_PANEL)(command)


@takes_cluster
def backup(app: AppArgument, *, at: ClientContext, output: OutputOption = Output.TEXT) -> None:
    """Copy an app's state with its positions; the app continues to run.

    Example: `mesh backup Temperature`
    """
    with CommandClient(at) as client:
        answer = client.backup(app)
    size = f"{answer['snapshots']} snapshots, {answer['bytes'] / 1e6:.1f} MB"
    show(output, answer, f'app "{app}" is backed up as revision {answer["revision"]}: {size}')


@takes_cluster
def backups(
    app: AppArgument,
    delete: Annotated[
        str | None, typer.Option(help="Delete this revision, or 'all' of them.")
    ] = None,
    *,
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the backups of an app, oldest first, also when it is undeployed; or delete some.

    Example: `mesh backups Temperature`
    """
    with CommandClient(at) as client:
        if delete is not None:
            is_all = delete == "all"
            done = client.delete_backups(app) if is_all else client.delete_backup(app, delete)
            show(output, done, f"{done['deleted']} deleted")
            return
        entries = client.backups(app)
    rows = [
        (
            one["revision"],
            datetime.fromtimestamp(one["at_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
            one["by"],
            one["snapshots"],
            f"{one['bytes'] / 1e6:.1f}",
        )
        for one in entries
    ]
    show_rows(output, entries, ("revision", "made at", "by", "snapshots", "MB"), rows)


@takes_cluster
def restore(
    app: AppArgument,
    revision: Annotated[str | None, typer.Option(help="The backup; the newest by default.")] = None,
    before: Annotated[
        str | None,
        typer.Option("--at", help="The newest backup made by this time, as in 2026-11-21T20:30Z."),
    ] = None,
    other: Annotated[
        str | None,
        typer.Option(
            "--as", help="Start a new app of this name with the state.", callback=app_token
        ),
    ] = None,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay/--no-replay",
            help="Read later events again and publish their outputs again.",
        ),
    ] = True,
    *,
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """Restore the state of a backup: the app stops, gets the state, and reads again from there.

    Outputs since the backup are published a second time. A new app (`--as`) has its own channels,
    which are empty.

    Example: `mesh restore Temperature --at 2026-11-21T20:30Z`
    """
    with CommandClient(at) as client:
        done = client.restore(app, revision=revision, before=before, other=other, replay=replay)
    message = (
        f"{done['behind']} messages are read again" if done["replays"] else "nothing is replayed"
    )
    where = f'app "{done["app"]}" continues from revision {done["revision"]}'
    show(output, done, f"{where}: {message}")
