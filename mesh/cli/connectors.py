"""``mesh connectors``: installed sources, sinks and mappers with their options.

``mesh explain``: meaning of an error code.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mesh.cli.options import OutputOption  # noqa: TC001  # typer reads the annotations
from mesh.cli.output import Output, show, show_json, show_table
from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.connect.spec import Spec
    from mesh.error_codes import Entry


#: Wider lines are hard to read.
_WIDTH_MAX = 100

CodeArgument = Annotated[
    str | None,
    typer.Argument(
        help="A code, as in MESH-L104 or L104; without it all codes are listed.", metavar="CODE"
    ),
]


class ConnectorsOutput(StrEnum):
    """``--output`` of the command."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


NameArgument = Annotated[
    str | None, typer.Argument(help="A type such as http; all if not given.", metavar="NAME")
]
FormOption = Annotated[ConnectorsOutput, typer.Option("--output", "-o", help="Output format.")]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="An app's text")(connectors)
    app.command(rich_help_panel="An app's text")(explain)


def connectors(name: NameArgument = None, output: FormOption = ConnectorsOutput.TEXT) -> None:
    """Show the installed sources, sinks, mappers and distribution strategies.

    Example: `mesh connectors http`, or `mesh connectors --output markdown`
    """
    from mesh.connect import registry
    from mesh.connect.registry import markdown, to_values
    from mesh.plan.diagnostics import nearest

    specs = registry.specs()
    matches = [spec for (_, spec_name), spec in specs.items() if name in (None, spec_name)]
    if not matches:
        names = sorted({spec_name for _, spec_name in specs})
        raise MeshError(
            "MESH-U128",
            f'connector "{name}" is not installed',
            detail=f"Installed are: {', '.join(names)}.",
            hint=nearest(name or "", names),
        )
    match output:
        case ConnectorsOutput.JSON:
            show_json([to_values(spec) for spec in matches])
        case ConnectorsOutput.MARKDOWN:
            sys.stdout.write(markdown(matches) + "\n")
        case ConnectorsOutput.TEXT:
            _show(matches, with_options=name is not None)


def _show(specs: Iterable[Spec], *, with_options: bool) -> None:
    from mesh.connect.registry import ignored, rows
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


def explain(code: CodeArgument = None, output: OutputOption = Output.TEXT) -> None:
    """Explain an error code: meaning, example and remedy.

    Without a code all codes are listed.

    Example: `mesh explain MESH-L104`
    """
    from mesh.error_codes import catalogue, find

    if code is None:
        entries = catalogue().values()
        lines = "\n".join(f"{entry.code}  {entry.title}" for entry in entries)
        show(output, [entry.to_dict() for entry in entries], lines)
        return
    entry = find(code)
    width = min(shutil.get_terminal_size().columns, _WIDTH_MAX)
    show(output, entry.to_dict(), describe(entry, width))


def describe(entry: Entry, width: int) -> str:
    """The entry as text, paragraphs at most ``width`` wide."""
    parts = [f"{entry.code}: {entry.title}", _filled(entry.meaning, width)]
    if entry.example is not None:
        parts += ["For example:", _moved_in(entry.example.app), "gives:"]
        parts.append(_moved_in(entry.example.error))
    elif entry.messages:
        parts += ["Messages:", _moved_in("\n".join(entry.messages))]
    parts.append(_filled(f"Remedy: {entry.mend}", width))
    return "\n\n".join(parts)


def _filled(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def _moved_in(text: str) -> str:
    return textwrap.indent(text, "    ")
