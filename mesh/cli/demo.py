"""``mesh demo``: the example app on real weather data, with a report of its output."""

from __future__ import annotations

import asyncio
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mesh.cli.dev import WorkersOption  # noqa: TC001 - typer reads the annotations
from mesh.processes.progress import hidden

if TYPE_CHECKING:
    from mesh.cli.demo_run import Demo
    from mesh.cli.local import LocalCluster

_PANEL = "A cluster on this machine"
#: Only a directory with this file in it is emptied.
_MARK = "made-by-mesh-demo"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel=_PANEL)(demo)


def demo(
    data: Annotated[
        Path,
        typer.Option("--data", metavar="DIR", help="Data directory; emptied at each start."),
    ] = Path(".mesh", "demo"),
    workers: WorkersOption = 2,
    rows: Annotated[int, typer.Option(min=1, help="Number of events; default: all 26,115.")] = (
        26_115
    ),
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the cluster running until Ctrl-C.")
    ] = False,
) -> None:
    """Start a cluster, run examples/temperature.siddhi on a year of weather, and kill a worker.

    1. Starts what 'mesh dev' starts: NATS with JetStream, a manager, two workers; and deploys
       examples/temperature.siddhi as 'mesh deploy' does.

    2. Publishes hourly readings of three New York airports (2013) with a plain NATS client: the
       first at a steady 200 events per second, for the latency; most of the year as a burst, for
       the rate.

    3. Publishes the rest steadily, and kills a worker meanwhile with kill -9.

    4. Shows the output live. The last screen has latency, rate, the pause after the kill, and each
       row that was lost or doubled; the exit status is 1 if there is any.

    Example: `mesh demo --keep`, then in another terminal `mesh tap Temperature AlertStream`
    """
    import psutil

    from mesh.cli.demo_run import Demo, make_view
    from mesh.clock import SystemClock

    # From the start of the process, so that the time of the imports is included.
    age_s = SystemClock().wall_ms() / 1000 - psutil.Process().create_time()
    view = make_view(sys.stdout)
    with hidden() if sys.stdout.isatty() else nullcontext():
        asyncio.run(_run(Demo(view, rows, age_s), data, workers, keep))


async def _run(demo: Demo, data: Path, workers: int, keep: bool) -> None:
    from mesh import settings
    from mesh.cli import dev
    from mesh.cli.local import LocalPlan

    _empty(data)
    # The demo's app needs no others.
    plan = LocalPlan(data, workers, settings.load(), usual_loops=True)
    async with dev.running(plan, demo.view.say) as cluster:
        (data / _MARK).touch()
        try:
            await _watched(cluster, demo)
        except asyncio.CancelledError:
            demo.view.say("ending ...")
            raise typer.Exit(130) from None
        if keep:
            demo.view.say(
                "The cluster is still running: mesh status Temperature, and the dashboard at"
            )
            demo.view.say(f"{cluster.context.server}  Ctrl-C ends it.")
            await dev.until_signal(cluster)
    if not demo.is_exact:
        raise typer.Exit(1)


async def _watched(cluster: LocalCluster, demo: Demo) -> None:
    """Run the demo until it ends or a process of the cluster does."""
    from mesh.processes.signals import end

    watch = asyncio.create_task(cluster.watch())
    work = asyncio.create_task(demo.run(cluster))
    try:
        await asyncio.wait((watch, work), return_when=asyncio.FIRST_COMPLETED)
        if watch.done():
            watch.result()
        await work
    finally:
        await end((watch, work))
        demo.view.close()


def _empty(data: Path) -> None:
    if (data / _MARK).exists():
        from mesh.cli.local import in_use

        if not in_use(data):
            shutil.rmtree(data)
