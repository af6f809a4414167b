"""``mesh verify``: gaps, lost states and risks of apps, from what NATS stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mesh.cli.options import CommandClient, OutputOption, app_token, takes_cluster
from mesh.cli.output import Output, show_json, show_table
from mesh.processes.progress import working

if TYPE_CHECKING:
    from mesh.client import ClientContext
    from mesh.model.values import JsonObject

AppsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="Names of apps; all of them without one.",
        metavar="APP",
        callback=lambda apps: [app_token(app) for app in apps or ()],
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Apps of a cluster")(verify)


@takes_cluster
def verify(
    apps: AppsArgument = None, *, at: ClientContext, output: OutputOption = Output.TEXT
) -> None:
    """Compare what NATS stores of apps with their records; ends with 1 if something is lost.

    A fault is a loss or a contradiction: deleted messages, a forged or lost marker, a state without
    its pieces.  A risk becomes one at the next failure, or with time.

    Example: `mesh verify Temperature`
    """
    with CommandClient(at) as client:
        names = apps or [one["app"] for one in client.apps()]
        answers: list[JsonObject] = []
        with working("what NATS stores of apps is read") as work:
            for name in names:
                work.tell(done=len(answers), total=len(names))
                answers.append(client.verify(name))
    faults = sum(one["faults"] for one in answers)
    if output is Output.JSON:
        show_json(answers)
    else:
        _show(answers)
    if faults:
        raise typer.Exit(1)


def _show(answers: list[JsonObject]) -> None:
    rows = [one for app in answers for one in app["findings"]]
    if rows:
        columns = ("app", "severity", "kind", "where", "text", "remedy")
        show_table(columns, [tuple(row[column] for column in columns) for row in rows])
    for app in answers:
        if not app["findings"]:
            typer.echo(f'app "{app["app"]}": no fault and no risk found')
