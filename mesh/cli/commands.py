"""All commands; a ``MeshError`` ends a command with exit code 1."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

import typer
from typer.core import TyperGroup

import mesh
from mesh.cli.output import show_error
from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Commands(TyperGroup):
    """Command group that prints a ``MeshError`` without a traceback."""

    def invoke(self, ctx: Any) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except MeshError as error:
            show_error(error)
            raise typer.Exit(1) from error
        except BaseExceptionGroup as group:
            # Errors of concurrent tasks; several may have failed for one reason.
            ours, others = group.split(MeshError)
            if ours is None or others is not None:
                raise
            for message in dict.fromkeys(map(MeshError.render, _leaves(ours))):
                typer.echo(message, err=True)
            raise typer.Exit(1) from group


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A mesh of streaming apps on NATS: SiddhiQL apps, split over workers, run by PySpark.\n\n"
    "Try `mesh demo`, or `mesh dev` in one terminal and `mesh deploy app.siddhi` in another.",
)


def _leaves(group: BaseExceptionGroup[MeshError]) -> Iterator[MeshError]:
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from _leaves(one)
        else:
            yield one


def _version(is_set: bool) -> None:
    if is_set:
        typer.echo(f"mesh {mesh.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    pass


#: Modules of commands, in the order of ``--help``.
PARTS: Final = (
    "dev", "contexts", "connector_check", "demo", "doctor", "help", "texts", "migrate", "plans",
    "preview", "testing", "lsp", "connectors", "apps", "timeline", "backfill", "failed", "events",
    "cluster", "nodes", "trace", "nats_config", "install", "datacenters", "pack", "top", "verify",
    "accounts",
)  # fmt: skip
for part in PARTS:
    importlib.import_module(f"mesh.cli.{part}").add_to(app)
