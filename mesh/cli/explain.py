"""``mesh explain``: the meaning of an error code."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from mesh.cli.options import OutputOption  # noqa: TC001  # typer reads the annotations
from mesh.cli.output import Output, show_json

if TYPE_CHECKING:
    from mesh.codes import Entry

#: Wider lines are hard to read.
_WIDTH_MAX = 100

CodeArgument = Annotated[
    str | None,
    typer.Argument(help="A code, as in MESH-L104 or L104; all are listed without.", metavar="CODE"),
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="An app's text")(explain)


def explain(code: CodeArgument = None, output: OutputOption = Output.TEXT) -> None:
    """Say what an error's code means, with an example, and how to mend it.

    Without a code all of them are listed.

    Example: `mesh explain MESH-L104`
    """
    from mesh.codes import catalogue, find

    if code is None:
        entries = catalogue().values()
        if output is Output.JSON:
            show_json([entry.to_dict() for entry in entries])
        else:
            typer.echo("\n".join(f"{entry.code}  {entry.title}" for entry in entries))
        return
    entry = find(code)
    if output is Output.JSON:
        show_json(entry.to_dict())
    else:
        width = min(shutil.get_terminal_size().columns, _WIDTH_MAX)
        typer.echo(describe(entry, width))


def describe(entry: Entry, width: int) -> str:
    """The entry as a person reads it, paragraphs at most ``width`` wide."""
    parts = [f"{entry.code}: {entry.title}", _filled(entry.meaning, width)]
    if entry.example is not None:
        parts += ["For example:", _moved_in(entry.example.app), "is told:"]
        parts.append(_moved_in(entry.example.error))
    elif entry.messages:
        parts += ["It is told as:", _moved_in("\n".join(entry.messages))]
    parts.append(_filled(f"To mend it: {entry.mend}", width))
    return "\n\n".join(parts)


def _filled(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def _moved_in(text: str) -> str:
    return textwrap.indent(text, "    ")
