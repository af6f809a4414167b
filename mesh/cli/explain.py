"""``mesh explain``: meaning of an error code."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from mesh.cli.options import OutputOption  # noqa: TC001  # typer reads the annotations
from mesh.cli.output import Output, show

if TYPE_CHECKING:
    from mesh.error_codes import Entry

#: Wider lines are hard to read.
_WIDTH_MAX = 100

CodeArgument = Annotated[
    str | None,
    typer.Argument(
        help="A code, as in MESH-L104 or L104; without it all codes are listed.", metavar="CODE"
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="An app's text")(explain)


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
