"""``mesh nodes``: who is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
            n["id"], n["role"], n["presence"], n["leads"], n["ready"], n["instances"],
            n["address"], n["pid"], n["cpu_percent"], n["memory_bytes"] // 1_000_000,
        )
        for n in found
    ]  # fmt: skip
    columns = ("node", "role", "presence", "leads", "ready", "instances", "address", "pid")
    show_table((*columns, "cpu %", "memory MB"), rows)
