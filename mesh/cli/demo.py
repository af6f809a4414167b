"""``mesh demo``: the example app on real weather data, from the start to a table of results."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mesh.cli.dev import WorkersOption  # noqa: TC001 - typer reads the annotations

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
        typer.Option("--data", metavar="DIR", help="Where its files go; emptied at each start."),
    ] = Path(".mesh", "demo"),
    workers: WorkersOption = 2,
    rows: Annotated[int, typer.Option(min=1, help="How many events, all 26,115 if not told.")] = (
        26_115
    ),
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the cluster running at the end, until Ctrl-C.")
    ] = False,
) -> None:
    """Start a cluster, run examples/temperature.siddhi on a year of weather, show what comes out.

    1. Starts what 'mesh dev' starts: NATS with JetStream, a manager, two workers.

    2. Deploys examples/temperature.siddhi as 'mesh deploy' does.

    3. Publishes 26,115 hourly readings of three New York airports (2013) with a plain NATS client,
       an hour of data as a second of event time.

    4. Shows the three output streams live, and at the end how many events went in and came out,
       how fast, how late, and which worker ran what.

    Example: `mesh demo --keep`, then in another terminal `mesh tap Temperature AlertStream`
    """
    import psutil

    from mesh.cli.demo_run import Demo
    from mesh.cli.demo_view import make_view
    from mesh.clock import SystemClock

    # From when the process was started, so that the time of the imports counts as well.
    age_s = SystemClock().wall_ms() / 1000 - psutil.Process().create_time()
    view = make_view(sys.stdout)
    asyncio.run(_run(Demo(view, rows, age_s), data, workers, keep))


async def _run(demo: Demo, data: Path, workers: int, keep: bool) -> None:
    from mesh import settings
    from mesh.cli import dev
    from mesh.cli.local import Plan

    _empty(data)
    plan = Plan(data, workers, settings.load())
    async with dev.running(plan, demo.view.say) as cluster:
        (data / _MARK).touch()
        try:
            await _watched(cluster, demo)
        except asyncio.CancelledError:
            demo.view.say("ending ...")
            raise typer.Exit(130) from None
        if keep:
            demo.view.say("The cluster is still running: mesh status Temperature.  Ctrl-C ends it.")
            await dev.until_signal(cluster)


async def _watched(cluster: LocalCluster, demo: Demo) -> None:
    """Run the demo until it ends or a process of the cluster does."""
    watch = asyncio.create_task(cluster.watch())
    work = asyncio.create_task(demo.run(cluster))
    try:
        await asyncio.wait((watch, work), return_when=asyncio.FIRST_COMPLETED)
        if watch.done():
            watch.result()
        await work
    finally:
        for task in (watch, work):
            task.cancel()
        await asyncio.gather(watch, work, return_exceptions=True)
        demo.view.close()


def _empty(data: Path) -> None:
    if (data / _MARK).exists():
        from mesh.cli.local import in_use

        if not in_use(data):
            shutil.rmtree(data)
