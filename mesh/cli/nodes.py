"""``mesh manager``, ``mesh worker`` and ``mesh user add``: the processes of a cluster."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mesh.cli.options import ConfigOption  # noqa: TC001 - typer reads the annotations

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from mesh.api.auth import Access
    from mesh.manager import ManagerService
    from mesh.settings import Settings

_PANEL = "Parts of a cluster"

IdOption = Annotated[
    str | None, typer.Option("--id", help="Name in the cluster; default: host name and a number.")
]

user_commands = typer.Typer(no_args_is_help=True, help="Users of the REST API.")


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel=_PANEL)(manager)
    app.command(rich_help_panel=_PANEL)(worker)
    app.add_typer(user_commands, name="user", rich_help_panel=_PANEL)


def manager(id: IdOption = None, config: ConfigOption = None) -> None:
    """Run a manager with its REST API until Ctrl-C or SIGTERM. Two or more may run; one leads.

    Example: `mesh manager --config conf/mesh.yaml`
    """
    settings = _prepare(config)
    if id is not None:
        settings = replace(settings, manager=replace(settings.manager, id=id))
    asyncio.run(_manage(settings))


def worker(id: IdOption = None, config: ConfigOption = None) -> None:
    """Run a worker, an agent and its Spark session, until Ctrl-C or SIGTERM.

    Example: `MESH_NATS_URL=nats://10.0.0.1:4222 mesh worker`
    """
    settings = _prepare(config)
    if id is not None:
        settings = replace(settings, worker=replace(settings.worker, id=id))
    from mesh.worker import worker

    asyncio.run(worker.run(settings))


@user_commands.command("add")
def add_user(
    name: Annotated[str, typer.Argument(help="User name.")],
    file: Annotated[
        Path, typer.Option("--file", help="Users file; manager.users_file names it.")
    ] = Path("users"),
    password: Annotated[
        str,
        typer.Option(
            envvar="MESH_NEW_PASSWORD",
            prompt="Password",
            hide_input=True,
            confirmation_prompt=True,
            help="The command asks for it if it is not in the environment.",
        ),
    ] = "",
    may: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Permissions, comma-separated: view, manage (apps and workers), monitor (the "
            "cluster); default: all.",
        ),
    ] = None,
) -> None:
    """Add a user to a users file, or change a password. A running manager reads it at once.

    Example: `mesh user add ada --file /etc/mesh/users --may view,monitor`
    """
    from mesh.api import users
    from mesh.api.permissions import read_permissions

    permissions = read_permissions(may) if may is not None else None
    is_new = users.add(file, name, password, permissions)
    typer.echo(f'user "{name}" {"added to" if is_new else "has a new password in"} {file}')


@user_commands.callback()
def _users() -> None:
    """Users of the REST API."""


def _prepare(config: Path | None) -> Settings:
    from mesh import logs, settings
    from mesh.cli.local import watch_parent

    loaded = settings.load(config)
    logs.configure(loaded.log.level, loaded.log.style)
    watch_parent()
    return loaded


async def _manage(settings: Settings) -> None:
    from mesh.api.server import ApiServer, listen
    from mesh.clock import SystemClock
    from mesh.dashboard.server import Front, make_pages
    from mesh.manager import run

    # Invalid settings are refused before anything is written to NATS.
    listener = listen(settings.manager)

    async def serve(service: ManagerService, announce: Callable[[str], None]) -> None:
        clock = SystemClock()

        def front(app: ASGIApp, access: Access) -> ASGIApp:
            return Front(app, make_pages(service, access, clock))

        api = ApiServer(service, settings.manager, listener, front)
        announce(listener.address)
        await api.run()

    await run(settings, serve)
