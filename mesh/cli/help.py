"""``mesh help``: the pages of the documentation in the terminal."""

from __future__ import annotations

import difflib
import os
import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mesh.errors import MeshError
from mesh.files import shipped

if TYPE_CHECKING:
    from pathlib import Path

#: Wider lines are hard to read.
_WIDTH_MAX = 100
_README = "readme"

TopicArgument = Annotated[
    str | None,
    typer.Argument(metavar="TOPIC", help="A page, or a command; without it pages are listed."),
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("help")(show_topic)


def show_topic(ctx: typer.Context, topic: TopicArgument = None) -> None:
    """Show a page of the documentation, or list the pages.

    A page is paged on a terminal, and plain Markdown in a pipe. The name of a command shows its
    `--help`.

    Example: `mesh help cookbook`
    """
    pages = topics()
    if topic is None:
        width = max(map(len, pages))
        for name, path in pages.items():
            typer.echo(f"{name:<{width}}  {summary_of(path.read_text('utf-8'))}")
        typer.echo("\nmesh help TOPIC shows one; mesh COMMAND --help explains a command.")
        return
    if topic in pages:
        _show(pages[topic].read_text("utf-8"))
        return
    root = ctx.find_root()
    commands = getattr(root.command, "commands", {})
    if topic not in commands:
        near = difflib.get_close_matches(topic, [*pages, *commands], 1)
        raise MeshError(
            "MESH-U183",
            f'there is no page "{topic}"',
            hint=f'Did you mean "{near[0]}"?' if near else "mesh help lists all pages.",
        )
    command = commands[topic]
    typer.echo(command.get_help(command.make_context(topic, [], root, resilient_parsing=True)))


def topics() -> dict[str, Path]:
    """Pages by the names of topics: ``cli``, ``design/sink``; MESH-U151 without any."""
    (docs,) = (part for part in shipped.PARTS if part.name == "docs")
    pages = {name.removesuffix(".md"): path for name, path in shipped.paths_of(docs).items()}
    return {_README: shipped.path_of("README.md"), **pages}


def summary_of(page: str) -> str:
    """The first sentence of a page below its title, without marks."""
    paragraph = next(part for part in page.split("\n\n")[1:] if part.strip())
    sentence = re.split(r"(?<=\.)\s", " ".join(paragraph.split()))[0]
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", sentence).replace("`", "")


def _show(page: str) -> None:
    if not sys.stdout.isatty():
        typer.echo(page.rstrip("\n"))
        return
    from rich.console import Console
    from rich.markdown import Markdown

    # The most common pager shows the codes of colours otherwise.
    os.environ.setdefault("LESS", "-R")
    console = Console()
    with console.pager(styles=True):
        console.print(Markdown(page, hyperlinks=False), width=min(console.width, _WIDTH_MAX))
