"""``mesh dev``: a cluster on this machine, until Ctrl-C.

``mesh dev --watch``: deploys the apps of a folder, and again when one is saved.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mesh.cli.apps import deploy_and_wait, describe_deploy
from mesh.cli.options import CommandClient, ConfigOption, filled
from mesh.cli.output import show_error
from mesh.errors import MeshError, all_errors
from mesh.processes.progress import working
from mesh.processes.signals import end

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from mesh.cli.local import LocalCluster, LocalPlan
    from mesh.client import ClientContext

_PANEL = "A cluster on this machine"
#: Interval of looks at workers that start.
_LOOK_S = 0.5

DataOption = Annotated[
    Path, typer.Option("--data", metavar="DIR", help="Data directory, also for logs.")
]
WorkersOption = Annotated[int, typer.Option("--workers", min=1, max=16, help="Number of workers.")]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel=_PANEL)(dev)


def dev(
    data: DataOption = Path(".mesh", "dev"),
    workers: WorkersOption = 1,
    nats_port: Annotated[
        int | None,
        typer.Option(help="Port of NATS, 0 for a free one; default: that of the last start."),
    ] = None,
    api_port: Annotated[
        int | None,
        typer.Option(help="Port of the REST API, 0 for a free one; default: as for NATS."),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Deploy the .siddhi files of this folder, again when saved."),
    ] = False,
    log_level: Annotated[
        str, typer.Option(help="Level of the logs in the data directory.")
    ] = "INFO",
    config: ConfigOption = None,
) -> None:
    """Run a cluster on this machine: NATS, a manager with the REST API, workers.

    Everything is kept below --data, so a second run continues where the first ended, with the same
    ports and passwords, which `mesh context show` prints again. The first run has the ports 4222
    and 9543 if they are free. Other commands of the same user find this cluster by themselves.
    Ctrl-C ends everything.

    With --watch the apps of the current folder are deployed, and again when a file is saved. Errors
    are shown with their lines, and changes with the groups that restart.

    Example: `mesh dev --workers 2`, and in another terminal `mesh deploy app.siddhi`
    """
    from mesh import mesh_name, settings
    from mesh.cli.local import LocalPlan

    loaded = settings.load(config, {**os.environ, "MESH_LOG_LEVEL": log_level})
    mesh_name.use(loaded.mesh.name)
    plan = LocalPlan(data, workers, loaded, nats_port, api_port, loaded.log.level)
    # A Ctrl-C before the manager is up also ends everything in order.
    with suppress(asyncio.CancelledError):
        asyncio.run(_run(plan, Path.cwd() if watch else None))


async def _run(plan: LocalPlan, folder: Path | None) -> None:
    from mesh.client.context import described

    async with running(plan, typer.echo) as cluster:
        for line in (*cluster.notes, *described(cluster.context)):
            typer.echo(line)
        await wait_until_up(cluster)
        typer.echo("The manager is up; the workers' Spark sessions need some more seconds.")
        readying = asyncio.create_task(_tell_ready(cluster))
        if folder is None:
            typer.echo("Try: mesh init shop; mesh deploy shop/shop.siddhi.  Ctrl-C ends all.")
        else:
            typer.echo(f"Apps of {folder} are deployed when saved.  Ctrl-C ends everything.")
        await until_signal(cluster, folder)
        await end([readying])
        typer.echo("ending ...")


@asynccontextmanager
async def running(plan: LocalPlan, say: Callable[[str], None]) -> AsyncIterator[LocalCluster]:
    """A cluster with a context file for the commands; ended in order at the end."""
    from mesh.cli import local
    from mesh.client import context

    loop = asyncio.get_running_loop()
    # From here on Ctrl-C and SIGTERM cancel this task, so that all children are ended.
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    with working("NATS, a manager and workers start"):
        cluster = local.start(plan)
    cluster.on_loss = say
    paths = (plan.directory / "context.json", context.config_path())
    try:
        for path in paths:
            with suppress(OSError):
                context.write(cluster.context, path)
        yield cluster
    finally:
        cluster.stop()
        for path in paths:
            context.remove(cluster.context, path)


async def wait_until_up(cluster: LocalCluster) -> None:
    """Return when the manager answers; raise if a process ends earlier."""
    from mesh.cli.options import CommandClient

    with working("the manager starts"), CommandClient(cluster.context) as client:
        while not await asyncio.to_thread(client.is_up):
            cluster.watch_once()
            await asyncio.sleep(0.1)


async def _tell_ready(cluster: LocalCluster) -> None:
    """Show what the workers wait for until all are ready, and say so."""
    from mesh.cli.options import CommandClient
    from mesh.cli.output import counted

    what = "Spark sessions start"
    count = cluster.plan.workers
    with CommandClient(cluster.context) as client:
        with working(what) as work:
            while True:
                # A manager that does not answer now is asked again.
                with suppress(MeshError):
                    nodes = await asyncio.to_thread(client.nodes)
                    mine = [one for one in nodes if one["role"] == "worker"]
                    ready = sum(one["ready"] for one in mine)
                    if ready >= count:
                        break
                    why = {f"{one['id']} {one['why']}" for one in mine if one["why"]}
                    work.tell(": ".join(filter(None, (what, "; ".join(sorted(why))))), ready, count)
                await asyncio.sleep(_LOOK_S)
        typer.echo(f"{counted(count, 'worker')} ready after {work.age_s:.0f} s.")


async def until_signal(cluster: LocalCluster, folder: Path | None = None) -> None:
    """Watch the children, and the apps of ``folder``, until Ctrl-C or SIGTERM."""
    tasks = [asyncio.create_task(cluster.watch())]
    if folder is not None:
        tasks.append(asyncio.create_task(keep_deployed(cluster.context, folder, typer.echo)))
    try:
        with suppress(asyncio.CancelledError):
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # Neither ends without an error.
            for task in done:
                task.result()
    finally:
        await end(tasks)


SUFFIX: Final = ".siddhi"
#: A file that is left alone for so long is complete: editors write one in several steps.
SETTLE_MS: Final = 100
#: Period of looks without a notification.
LOOK_MS: Final = 500
#: Time for an app to run, also while the first session starts.
RUN_S: Final = 60.0


def texts_of(folder: Path) -> dict[Path, str]:
    """The apps of a folder; a file that vanishes or has other bytes than text is left out."""
    texts = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            texts[path] = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError):
            continue
    return texts


def changed(before: Mapping[Path, str], now: Mapping[Path, str]) -> list[Path]:
    """The files that are new or have another text, in order."""
    return [path for path, text in now.items() if before.get(path) != text]


def removed(before: Mapping[Path, str], now: Mapping[Path, str]) -> list[Path]:
    """The files that have vanished, in order."""
    return [path for path in before if path not in now]


async def keep_deployed(at: ClientContext, folder: Path, say: Callable[[str], None]) -> None:
    """Deploy each app of ``folder`` now and whenever it is saved, without end.

    An error is shown with its line, and the app continues with its last text.  The app of a removed
    file stays deployed: a file is easily moved, and its states are not easily made again.
    """
    from watchfiles import awatch

    previous: dict[Path, str] = {}
    # A look without a notification finds the first texts, and changes on a network file system.
    async for _ in awatch(
        folder, step=SETTLE_MS, recursive=False, yield_on_timeout=True, rust_timeout=LOOK_MS
    ):
        now = texts_of(folder)
        for path in removed(previous, now):
            say(f"{path.name} is gone; its app stays deployed: mesh undeploy removes it")
        todo, previous = changed(previous, now), now
        for path in todo:
            await asyncio.to_thread(deploy_file, at, path, now[path], say)


def deploy_file(at: ClientContext, path: Path, text: str, say: Callable[[str], None]) -> bool:
    """Deploy one text, and show its outcome or its errors; whether it was accepted."""
    # Imported late, as below: only this option needs it.
    from mesh.plan.build import plan

    try:
        text = filled(text, {}, path)
        # Here all errors are found; a manager reports the first.
        plan(text)
        with CommandClient(at) as client:
            say(f"{path.name}: {describe_deploy(deploy_and_wait(client, text, RUN_S))}")
    except MeshError as error:
        for one in all_errors(error):
            show_error(one, text, path.name)
        say(f"{path.name} is not deployed; it is tried again when you save it")
        return False
    return True
