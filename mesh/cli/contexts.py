"""``mesh context show``: the cluster that other commands use, with its addresses and logins."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from mesh.cli.options import OutputOption, takes_cluster_and_nats
from mesh.cli.output import Output, show
from mesh.client.context import described
from mesh.errors import MeshError

if TYPE_CHECKING:
    from mesh.client import ClientContext

context_commands = typer.Typer(no_args_is_help=True, help="Address of the cluster.")


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    context_commands.command("show")(show_context)
    app.add_typer(context_commands, name="context", rich_help_panel="A cluster on this machine")


@takes_cluster_and_nats
def show_context(*, at: ClientContext, output: OutputOption = Output.TEXT) -> None:
    """Print addresses and passwords of the cluster that commands use here.

    Of `mesh dev` these are the lines that it printed when it started.

    Example: `mesh context show`
    """
    if not (at.server or at.nats):
        raise MeshError(
            "MESH-U111",
            "no cluster named",
            hint="'mesh dev' starts one; --server and --context name others.",
        )
    values = {name: value for name, value in asdict(at).items() if name != "login" and value}
    show(output, values, "\n".join(described(at)))
