"""``mesh secret``: values that texts refer to as ``${secret:name}``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mesh.cli.client import CommandClient
from mesh.cli.options import OutputOption, takes_cluster
from mesh.cli.output import Output, show

if TYPE_CHECKING:
    from mesh.client import ClientContext

secret_commands = typer.Typer(no_args_is_help=True, help="Secrets of apps.")

_NameArgument = Annotated[str, typer.Argument(help="Name of the secret.")]

_AppsOption = Annotated[
    str,
    typer.Option(
        "--apps",
        metavar="PATTERNS",
        help="Apps that may use it, comma-separated, with `*`; every app without it.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    secret_commands.command("set")(set_secret)
    secret_commands.command("list")(list_secrets)
    secret_commands.command("rm")(remove_secret)
    app.add_typer(secret_commands, name="secret", rich_help_panel="Users")


@takes_cluster
def set_secret(name: _NameArgument, *, apps: _AppsOption = "", at: ClientContext) -> None:
    """Store a secret; its value is asked for, or read from standard input.

    Sources and sinks get it for `${secret:NAME}` in an option when they start.

    Example: `mesh secret set broker.password --apps 'Shop*' < password.txt`
    """
    if sys.stdin.isatty():
        value = typer.prompt("Value", hide_input=True, confirmation_prompt=True)
    else:
        value = sys.stdin.read().removesuffix("\n")
    with CommandClient(at) as client:
        client.put_secret(name, value, apps=apps)
    typer.echo(f'secret "{name}" is stored')


@takes_cluster
def list_secrets(*, output: OutputOption = Output.TEXT, at: ClientContext) -> None:
    """List the names of secrets, with their apps; values are shown to no user."""
    with CommandClient(at) as client:
        entries = client.secrets()
    show(output, entries, "\n".join(f"{one['name']}  {one['apps']}" for one in entries))


@takes_cluster
def remove_secret(name: _NameArgument, *, at: ClientContext) -> None:
    """Remove a secret; instances that run keep theirs until they start again."""
    with CommandClient(at) as client:
        client.delete_secret(name)
    typer.echo(f'secret "{name}" is removed')
