"""``mesh connectors``: installed sources, sinks and mappers with their options."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mesh.cli.output import show_json, show_table
from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.connect.spec import Spec


class Form(StrEnum):
    """``--output`` of the command."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


NameArgument = Annotated[
    str | None, typer.Argument(help="A type such as http; all if not given.", metavar="NAME")
]
FormOption = Annotated[Form, typer.Option("--output", "-o", help="Output format.")]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="An app's text")(connectors)


def connectors(name: NameArgument = None, output: FormOption = Form.TEXT) -> None:
    """Show the installed sources, sinks, mappers and distribution strategies.

    Example: `mesh connectors http`, or `mesh connectors --output markdown`
    """
    from mesh.connect import registry
    from mesh.connect.describe import markdown, to_values
    from mesh.plan.name_errors import nearest

    known = registry.specs()
    found = [spec for (_, own), spec in known.items() if name in (None, own)]
    if not found:
        names = sorted({own for _, own in known})
        raise MeshError(
            "MESH-U128",
            f'connector "{name}" is not installed',
            detail=f"Installed are: {', '.join(names)}.",
            hint=nearest(name or "", names),
        )
    match output:
        case Form.JSON:
            show_json([to_values(spec) for spec in found])
        case Form.MARKDOWN:
            sys.stdout.write(markdown(found) + "\n")
        case Form.TEXT:
            _show(found, with_options=name is not None)


def _show(specs: Iterable[Spec], *, with_options: bool) -> None:
    from mesh.connect.describe import ignored, rows
    from mesh.connect.spec import Role

    if not with_options:
        show_table(
            ("name", "role", "delivery", "extra"),
            [
                (
                    spec.name,
                    str(spec.role),
                    str(spec.guarantee) if spec.role in (Role.SOURCE, Role.SINK) else None,
                    spec.extra or None,
                )
                for spec in specs
            ],
        )
        return
    for spec in specs:
        typer.echo(f"{spec.role} {spec.name}: {spec.doc}")
        if spec.role in (Role.SOURCE, Role.SINK):
            typer.echo(f"delivery: {spec.guarantee}. {spec.condition}".rstrip())
        show_table(("option", "type", "default", "meaning"), list(rows(spec)))
        if ignored(spec):
            typer.echo(f"accepted without effect: {', '.join(ignored(spec))}\n")
