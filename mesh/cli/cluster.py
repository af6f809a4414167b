"""``mesh nodes``, ``cordon``, ``uncordon`` and ``drain``: the workers of a cluster.

``mesh debug story``: the journal of an app with causes.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from mesh.cli.options import AppArgument, CommandClient, OutputOption, takes_cluster
from mesh.cli.output import Output, counted, show, show_json, show_rows
from mesh.processes.progress import working

if TYPE_CHECKING:
    from mesh.client import ClientContext
    from mesh.model.answers import InstanceAnswer, NodeAnswer, StoryAnswer


_PANEL = "Nodes of a cluster"
#: Interval at which a drain checks whether the worker is empty.
_LOOK_S = 0.25

NodeArgument = Annotated[str, typer.Argument(help="Name of the worker.", metavar="NODE")]

debug_commands = typer.Typer(no_args_is_help=True, help="Events with their causes.")


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("nodes", rich_help_panel=_PANEL)(list_nodes)
    for command in (cordon, uncordon, drain):
        app.command(rich_help_panel=_PANEL)(command)
    app.add_typer(debug_commands, name="debug", rich_help_panel="Apps of a cluster")


@takes_cluster
def list_nodes(*, at: ClientContext, output: OutputOption = Output.TEXT) -> None:
    """List managers and workers with leader, readiness and load.

    Example: `mesh nodes`
    """
    with CommandClient(at) as client:
        nodes = client.nodes()
    rows = [
        (
            n["id"], n["role"], n["presence"], n["leads"], _admits(n), _filled(n),
            ",".join(n["labels"]) or None, n["address"], n["pid"], n["cpu_percent"],
            n["process_cpu_percent"], n["memory_bytes"] // 1_000_000, n["memory_percent"],
            n["memory_limit_bytes"] // 1_000_000, n["load_1m"],
        )
        for n in nodes
    ]  # fmt: skip
    columns = (
        "node", "role", "presence", "leads", "admits", "instances", "labels", "address", "pid",
        "cpu %", "own cpu %", "own memory MB", "memory %", "limit MB", "load",
    )  # fmt: skip
    show_rows(output, nodes, columns, rows)


@takes_cluster
def cordon(node: NodeArgument, *, at: ClientContext, output: OutputOption = Output.TEXT) -> None:
    """Place no new instances on a worker; it keeps its instances.

    Example: `mesh cordon worker-1`
    """
    with CommandClient(at) as client:
        done = client.order_node(node, "cordon")
    instances = counted(done["instances"], "instance")
    show(output, done, f'worker "{node}" keeps its {instances} and gets no new ones')


@takes_cluster
def uncordon(node: NodeArgument, *, at: ClientContext, output: OutputOption = Output.TEXT) -> None:
    """Let a cordoned or drained worker accept instances again.

    Example: `mesh uncordon worker-1`
    """
    with CommandClient(at) as client:
        done = client.order_node(node, "uncordon")
    why = f", but it {done['why']}" if done["why"] else ""
    show(output, done, f'worker "{node}" accepts instances again{why}')


@takes_cluster
def drain(
    node: NodeArgument,
    timeout: Annotated[
        float, typer.Option(help="Time to wait until it is empty, seconds; 0 doesn't wait.")
    ] = 60.0,
    *,
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """Move all instances off a worker, and keep it empty until `mesh uncordon`.

    The exit code is 1 if instances are left in time: those without another place stay and run.

    Example: `mesh drain worker-1`
    """
    with CommandClient(at) as client:
        done = client.order_node(node, "drain")
        deadline_s = time.monotonic() + timeout
        total = done["instances"]
        with working(f'instances of worker "{node}" move', at_most_s=timeout) as work:
            while done["instances"] and time.monotonic() < deadline_s:
                work.tell(done=total - done["instances"], total=total)
                time.sleep(_LOOK_S)
                gone: NodeAnswer = {**done, "instances": 0}
                done = next((n for n in client.nodes() if _is_worker(n, node)), gone)
        left = _left(client, node) if done["instances"] else []
    if output is Output.JSON:
        show_json({**done, "left": left})
    elif not done["instances"]:
        typer.echo(f'worker "{node}" is empty')
    else:
        count = counted(done["instances"], "instance")
        typer.echo(f'worker "{node}" is drained and has {count} still')
        for instance in left:
            reason = instance["reason"] or "it is moving"
            typer.echo(f"{instance['instance']}: {reason}")
            if instance["cure"]:
                typer.echo(f"  hint: {instance['cure']}")
    if done["instances"] and timeout > 0:
        raise typer.Exit(1)


def _left(client: CommandClient, node: str) -> list[InstanceAnswer]:
    """The instances that are still on ``node``, with the reason."""
    return [i for app in client.apps() for i in app["instances"] if i["worker"] == node]


def _is_worker(node: NodeAnswer, name: str) -> bool:
    return bool(node["role"] == "worker" and node["id"] == name)


def _admits(node: NodeAnswer) -> str | None:
    """A worker's admission, with the reason if it is not open."""
    if node["role"] != "worker" or node["presence"] == "gone":
        return None
    return f"{node['admits']}: it {node['why']}" if node["why"] else str(node["admits"])


def _filled(node: NodeAnswer) -> str | None:
    if node["role"] != "worker":
        return None
    most = f" of {node['capacity']}" if node["capacity"] else ""
    return f"{node['instances']}{most}"


@debug_commands.callback()
def _debug() -> None:
    """Events with their causes."""


@debug_commands.command("story")
@takes_cluster
def story(app: AppArgument, *, at: ClientContext, output: OutputOption = Output.TEXT) -> None:
    """Show the events of an app in order, with actor and cause.

    Times are the clocks of the noting processes, in UTC.

    Example: `mesh debug story Temperature`
    """
    with CommandClient(at) as client:
        entries = client.story(app)
    show(output, entries, "\n".join(map(line, entries)))


def line(entry: StoryAnswer) -> str:
    """An entry as one line."""
    at = datetime.fromtimestamp(entry["at_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    cause = f": {entry['cause']}" if entry["cause"] else ""
    return f"{at}  {entry['by']} {entry['text']}{cause}"
