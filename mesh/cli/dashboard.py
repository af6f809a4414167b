"""``mesh dashboard``: the pages of a cluster from a process that is no manager."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from mesh.cli.options import ConfigOption  # noqa: TC001 - typer reads the annotations

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from mesh.api.page_access import PageAccess
    from mesh.settings import Settings


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Parts of a cluster")(dashboard)


def dashboard(
    config: ConfigOption = None,
    host: Annotated[str, typer.Option(help="Address to listen on; default: manager.host.")] = "",
    port: Annotated[int, typer.Option(help="Port of the pages, 0 for a free one.")] = 9544,
) -> None:
    """Serve the dashboard of a cluster, without being one of its managers.

    The process reads the cluster's state from NATS; its pages and users are those of a manager with
    the same settings. It leads nothing and can be stopped at any time. It serves no REST API.

    Example: `mesh dashboard --config mesh.yaml`
    """
    from mesh import mesh_name, settings
    from mesh.cli.local import watch_parent
    from mesh.telemetry import logs

    loaded = settings.load(config)
    mesh_name.use(loaded.mesh.name)
    logs.configure(loaded.log.level, loaded.log.style)
    watch_parent()
    manager = replace(loaded.manager, port=port, host=host or loaded.manager.host)
    asyncio.run(_serve(replace(loaded, manager=manager)))


async def _serve(settings: Settings) -> None:
    from mesh.api.oidc import make_provider
    from mesh.api.server import ApiServer, listen
    from mesh.clock import SystemClock
    from mesh.dashboard.server import make_pages
    from mesh.jetstream.audit import Audit
    from mesh.jetstream.directory import Directory
    from mesh.jetstream.sessions import UserSessions
    from mesh.manager.observer import observing
    from mesh.manager.supervision import Restarting
    from mesh.processes.signals import end, signalled

    provider = make_provider(settings.oidc, SystemClock())
    listener = listen(settings.manager)
    async with observing(settings) as service, asyncio.TaskGroup() as tasks:
        clock, js, replicas = SystemClock(), service.client.jetstream(), settings.channels.replicas
        directory = Directory(js, replicas)
        audit = Audit(service.client, replicas, settings.manager.audit_bytes, clock)

        def pages(app: ASGIApp, access: PageAccess) -> ASGIApp:
            return make_pages(service, access, clock)

        works = {"users": directory.follow, "audit": audit.follow}
        following = [tasks.create_task(Restarting(*one)()) for one in works.items()]
        await directory.ready()
        api = ApiServer(
            service,
            settings.manager,
            listener,
            pages,
            directory=directory,
            audit=audit,
            provider=provider,
            sessions=UserSessions(js, clock, replicas),
        )
        typer.echo(f"dashboard  {api.url}")
        serving = asyncio.create_task(api.run())
        stopping = asyncio.create_task(signalled())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        api.stop()
        await serving
        await end(following)
