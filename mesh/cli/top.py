"""``mesh top``: the cluster in a terminal, live; what needs a person first.

The order and the words are those of ``GET /overview``, as on the dashboard and in ``mesh status``.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mesh.cli.options import CommandClient, OutputOption, takes_cluster
from mesh.cli.output import Output, counted, show_json
from mesh.errors import MeshError
from mesh.model.names import app_of_token
from mesh.processes.progress import hidden

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from mesh.client import ClientContext
    from mesh.model.values import JsonMapping

#: Lines besides the rows of apps and nodes: headings, rules and the first line.
_FRAME_LINES: Final = 13
#: Rows of a screen whose height is not known.
_ROWS: Final = 40
_STYLES: Final = {
    "running": "green",
    "alive": "green",
    "failing": "bold red",
    "gone": "bold red",
    "waiting": "yellow",
    "suspect": "yellow",
    "paused": "cyan",
}


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Nodes of a cluster")(top)


@takes_cluster
def top(
    interval: Annotated[
        float, typer.Option(help="Time between two looks, seconds.", min=0.2, max=60.0)
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print it once, and end.")] = False,
    *,
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show problems, apps and nodes, the worst first, until Ctrl-C.

    Rates are events per second; `lag s` is the age of the oldest message that waits. Without a
    terminal, or with `--once`, it is printed once.

    Example: `mesh top`
    """
    with CommandClient(at) as client:
        if output is Output.JSON:
            show_json(client.overview())
        elif once or not sys.stdout.isatty():
            _print(client.overview())
        else:
            _live(client, interval)


def _print(overview: JsonMapping) -> None:
    from rich.console import Console

    console = Console() if sys.stdout.isatty() else Console(width=200)
    console.print(screen(overview, None))


def _live(client: CommandClient, interval_s: float) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    with hidden(), Live(console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                shown: RenderableType
                try:
                    shown = screen(client.overview(), console.height)
                except MeshError as error:
                    # A manager that restarts is looked for again.
                    shown = Text(error.render(), style="bold red")
                live.update(shown, refresh=True)
                time.sleep(interval_s)
        except KeyboardInterrupt:
            return


def screen(overview: JsonMapping, height: int | None) -> RenderableType:
    """The overview within ``height`` lines; the best rows are left out, and counted."""
    from rich.console import Group
    from rich.text import Text

    problems, apps, nodes = overview["problems"], overview["apps"], overview["nodes"]
    left = (height or _ROWS) - _FRAME_LINES
    shown_problems = problems[: max(1, left // 6)]
    left -= 2 * len(shown_problems)
    shown_nodes = nodes[: max(2, left // 3)]
    shown_apps = apps[: max(2, left - len(shown_nodes))]
    running = sum(app["state"] == "running" for app in apps)
    alive = sum(node["presence"] == "alive" for node in nodes)
    first = Text(
        f"leader {overview['leader'] or 'none'}   {running} of {len(apps)} apps running   "
        f"{alive} of {len(nodes)} nodes alive   {counted(len(problems), 'problem')}"
    )
    parts: list[RenderableType] = [first]
    for problem in shown_problems:
        message = f"! {problem['title']}: {problem['cause']}"
        parts.append(Text(message, style="bold red", no_wrap=True, overflow="ellipsis"))
        command = f"  ({problem['command']})" if problem["command"] else ""
        cure = f"  {problem['cure']}{command}"
        parts.append(Text(cure, no_wrap=True, overflow="ellipsis"))
    parts += _cut(len(problems), len(shown_problems), "problems")
    parts.append(_apps(shown_apps, overview["flows"]))
    parts += _cut(len(apps), len(shown_apps), "apps")
    parts.append(_nodes(shown_nodes))
    parts += _cut(len(nodes), len(shown_nodes), "nodes")
    return Group(*parts)


def _cut(count: int, shown: int, what: str) -> Sequence[RenderableType]:
    from rich.text import Text

    return [Text(f"  {count - shown} more {what}", style="dim")] if count > shown else []


def _apps(apps: Sequence[JsonMapping], flows: JsonMapping) -> RenderableType:
    rows = []
    for app in apps:
        flow = flows.get(app["app"], {})
        rows.append(
            (
                app_of_token(app["app"]),
                app["state"],
                f"{app['running']} of {app['instances']}",
                f"{flow.get('events_in', 0):,.1f}",
                f"{flow.get('events_out', 0):,.1f}",
                f"{app['failed']:,}",
                f"{app['behind']:,}",
                f"{flow.get('backlog_s', 0):,.1f}",
                f"{app['restarts']:,}",
                f"{flow.get('batch_s', 0) * 1000:,.1f}",
                app["reason"] or "",
            )
        )
    columns = (
        *("app", "state", "running", "in/s", "out/s", "failed", "behind", "lag s", "restarts"),
        *("batch ms p50", "reason"),
    )
    return _table(columns, rows, {"app", "state", "running", "reason"})


def _nodes(nodes: Sequence[JsonMapping]) -> RenderableType:
    rows = [
        (
            node["id"],
            node["role"],
            node["presence"],
            "yes" if node["leads"] else "",
            f"{node['admits']}: it {node['why']}" if node.get("why") else node["admits"],
            str(node["instances"]) if node["role"] == "worker" else "",
            f"{node['cpu_percent']:.1f}",
            f"{node['process_cpu_percent']:.1f}",
            f"{node['memory_bytes'] // 1_000_000:,}",
        )
        for node in nodes
    ]
    columns = (
        *("node", "role", "presence", "leads", "admits"),
        *("instances", "cpu %", "own cpu %", "own memory MB"),
    )
    return _table(columns, rows, {"node", "role", "presence", "leads", "admits"})


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], words: set[str]
) -> RenderableType:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(
            column,
            justify="left" if column in words else "right",
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in rows:
        table.add_row(*(Text(value, style=_STYLES.get(value, "")) for value in row))
    return table
