"""``mesh nodes``: who is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mesh.cli.options import (
    CaOption,
    ContextOption,
    InsecureOption,
    OutputOption,
    PasswordOption,
    ServerOption,
    UserOption,
    connect,
)
from mesh.cli.output import Output, show_json, show_table

if TYPE_CHECKING:
    import typer


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("nodes", rich_help_panel="Apps of a cluster")(list_nodes)


def list_nodes(
    server: ServerOption = None,
    user: UserOption = None,
    password: PasswordOption = None,
    ca: CaOption = None,
    insecure: InsecureOption = None,
    context: ContextOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List managers and workers: who leads, who is ready, how loaded they are.

    Example: `mesh nodes`
    """
    with connect(server, user, password, ca, insecure, context) as client:
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


def _admits(node: dict[str, Any]) -> str | None:
    """Whether a worker takes more; in words when not."""
    if node["role"] != "worker" or node["presence"] == "gone":
        return None
    return f"{node['admits']}: it {node['why']}" if node["why"] else str(node["admits"])


def _filled(node: dict[str, Any]) -> str | None:
    if node["role"] != "worker":
        return None
    most = f" of {node['capacity']}" if node["capacity"] else ""
    return f"{node['instances']}{most}"
