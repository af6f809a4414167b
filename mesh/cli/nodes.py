"""``mesh manager``, ``mesh worker`` and ``mesh dashboard``: the processes of a cluster."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mesh.cli.options import ConfigOption  # noqa: TC001 - typer reads the annotations  # noqa: TC001 - typer reads the annotations

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from mesh.api.page_access import PageAccess
    from mesh.manager import ManagerService
    from mesh.settings import Settings


_PANEL = "Parts of a cluster"

IdOption = Annotated[
    str | None, typer.Option("--id", help="Name in the cluster; default: host name and a number.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel=_PANEL)(manager)
    app.command(rich_help_panel=_PANEL)(worker)
    app.command(rich_help_panel="Parts of a cluster")(dashboard)


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


def _prepare(config: Path | None) -> Settings:
    from mesh.processes.imports import import_nats

    import_nats()
    from mesh import mesh_name, settings
    from mesh.cli.local import watch_parent
    from mesh.telemetry import logs

    loaded = settings.load(config)
    mesh_name.use(loaded.mesh.name)
    logs.configure(loaded.log.level, loaded.log.style)
    watch_parent()
    return loaded


async def _manage(settings: Settings) -> None:
    from mesh.api.oidc import make_provider
    from mesh.api.server import ApiServer, listen, offer_first_user
    from mesh.clock import SystemClock
    from mesh.dashboard.server import Front, make_pages
    from mesh.jetstream.audit import Audit
    from mesh.jetstream.directory import Directory
    from mesh.jetstream.secret_store import SecretStore
    from mesh.jetstream.sessions import UserSessions
    from mesh.manager import run
    from mesh.manager.supervision import Restarting
    from mesh.processes.signals import end

    # Invalid settings are refused before anything is written to NATS.
    provider = make_provider(settings.oidc, SystemClock())
    listener = listen(settings.manager)

    async def serve(service: ManagerService, announce: Callable[[str], None]) -> None:
        clock = SystemClock()
        replicas = settings.channels.replicas
        audit = Audit(service.client, replicas, settings.manager.audit_bytes, clock)
        js = service.client.jetstream()
        directory = Directory(js, replicas)

        def front(app: ASGIApp, access: PageAccess) -> ASGIApp:
            return Front(app, make_pages(service, access, clock))

        async with asyncio.TaskGroup() as tasks:
            following = [
                tasks.create_task(Restarting("users", directory.follow)()),
                tasks.create_task(Restarting("audit", audit.follow)()),
            ]
            await directory.ready()
            api = ApiServer(
                service,
                settings.manager,
                listener,
                front,
                directory=directory,
                audit=audit,
                secrets=SecretStore(js, settings.secrets.key_file, replicas),
                provider=provider,
                sessions=UserSessions(js, clock, replicas),
            )
            await offer_first_user(settings.manager, directory)
            announce(listener.address)
            await api.run()
            await end(following)

    await run(settings, serve)


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
    from mesh.manager.service import observing
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
