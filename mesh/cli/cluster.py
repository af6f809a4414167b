"""``mesh nodes``, ``cordon``, ``uncordon`` and ``drain``: the workers of a cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mesh.cli.client import Client
from mesh.cli.options import OutputOption, takes_cluster
from mesh.cli.output import Output, show_json, show_table

if TYPE_CHECKING:
    from mesh.cli.context import Context


_PANEL = "Nodes of a cluster"
#: Interval at which a drain checks whether the worker is empty.
_LOOK_S = 0.25

NodeArgument = Annotated[str, typer.Argument(help="Name of the worker.", metavar="NODE")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("nodes", rich_help_panel=_PANEL)(list_nodes)
    for command in (cordon, uncordon, drain):
        app.command(rich_help_panel=_PANEL)(command)


@takes_cluster
def list_nodes(*, at: Context, output: OutputOption = Output.TEXT) -> None:
    """List managers and workers: who leads, who is ready, how loaded they are.

    Example: `mesh nodes`
    """
    with Client(at) as client:
        found = client.nodes()
    if output is Output.JSON:
        show_json(found)
        return
    rows = [
        (
            n["id"], n["role"], n["presence"], n["leads"], _admits(n), _filled(n),
            ",".join(n["labels"]) or None, n["address"], n["pid"], n["cpu_percent"],
            n["process_cpu_percent"], n["memory_bytes"] // 1_000_000, n["memory_percent"],
            n["load_1m"],
        )
        for n in found
    ]  # fmt: skip
    columns = ("node", "role", "presence", "leads", "admits", "instances", "labels", "address")
    show_table((*columns, "pid", "cpu %", "own cpu %", "own memory MB", "memory %", "load"), rows)


@takes_cluster
def cordon(node: NodeArgument, *, at: Context, output: OutputOption = Output.TEXT) -> None:
    """Give a worker nothing new; what it has stays.

    Example: `mesh cordon worker-1`
    """
    with Client(at) as client:
        done = client.order_node(node, "cordon")
    if output is Output.JSON:
        show_json(done)
    else:
        typer.echo(f'worker "{node}" keeps its {_counted(done["instances"])} and gets no more')


@takes_cluster
def uncordon(node: NodeArgument, *, at: Context, output: OutputOption = Output.TEXT) -> None:
    """Let a worker that was cordoned or drained take its share again.

    Example: `mesh uncordon worker-1`
    """
    with Client(at) as client:
        done = client.order_node(node, "uncordon")
    if output is Output.JSON:
        show_json(done)
    else:
        why = f", but it {done['why']}" if done["why"] else ""
        typer.echo(f'worker "{node}" takes its share again{why}')


@takes_cluster
def drain(
    node: NodeArgument,
    timeout: Annotated[
        float, typer.Option(help="How long to wait until it is empty, seconds; 0 doesn't wait.")
    ] = 60.0,
    *,
    at: Context,
    output: OutputOption = Output.TEXT,
) -> None:
    """Move everything off a worker, and keep it empty until `mesh uncordon`.

    Ends with exit code 1 when something is left in time: what has no other place stays and runs.

    Example: `mesh drain worker-1`
    """
    with Client(at) as client:
        done = client.order_node(node, "drain")
        deadline_s = time.monotonic() + timeout
        while done["instances"] and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)
            done = next(
                (n for n in client.nodes() if _is_worker(n, node)), {**done, "instances": 0}
            )
        left = _left(client, node) if done["instances"] else []
    if output is Output.JSON:
        show_json({**done, "left": left})
    elif not done["instances"]:
        typer.echo(f'worker "{node}" is empty')
    else:
        typer.echo(f'worker "{node}" is drained and has {_counted(done["instances"])} still')
        for instance in left:
            reason = instance["reason"] or "it is on the move"
            typer.echo(f"{instance['instance']}: {reason}")
            if instance["cure"]:
                typer.echo(f"  hint: {instance['cure']}")
    if done["instances"] and timeout > 0:
        raise typer.Exit(1)


def _left(client: Client, node: str) -> list[dict[str, Any]]:
    """The instances on ``node``, each with the reason why it is still there."""
    return [i for app in client.apps() for i in app["instances"] if i["worker"] == node]


def _is_worker(node: dict[str, Any], name: str) -> bool:
    return bool(node["role"] == "worker" and node["id"] == name)


def _counted(instances: int) -> str:
    return f"{instances} instance{'' if instances == 1 else 's'}"


def _admits(node: dict[str, Any]) -> str | None:
    """Whether a worker accepts more instances; in words if not."""
    if node["role"] != "worker" or node["presence"] == "gone":
        return None
    return f"{node['admits']}: it {node['why']}" if node["why"] else str(node["admits"])


def _filled(node: dict[str, Any]) -> str | None:
    if node["role"] != "worker":
        return None
    most = f" of {node['capacity']}" if node["capacity"] else ""
    return f"{node['instances']}{most}"
