"""Table of ``mesh plan --on-cluster``: what holds through which failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from mesh.cli.output import counted, show_table

if TYPE_CHECKING:
    from mesh.model.values import JsonObject


def show(guarantees: JsonObject) -> None:
    """Print a row for each place, then reasons and remedies."""
    rows = guarantees["rows"]
    failures = list(dict.fromkeys(row["failure"] for row in rows))
    places: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        places.setdefault((row["place"], row["name"]), {})[row["failure"]] = row["holds"]
    show_table(
        ("place", "name", *failures),
        [(*place, *map(held.get, failures)) for place, held in places.items()],
    )
    synced_s = guarantees["sync_interval_s"]
    shown = "not stated, 2 minutes assumed" if synced_s is None else f"{synced_s:g} s"
    servers = counted(len(guarantees["servers"]) or 1, "server")
    replicas = guarantees["replicas"]
    typer.echo(f"{servers} seen, channels.replicas: {replicas}, sync_interval: {shown}")
    for line in guarantees["summary"]:
        typer.echo(f"- {line}")
