"""``mesh check``: opens the sources and sinks of an app from this machine."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mesh.cli.options import ConfigOption, OutputOption  # noqa: TC001 - as above
from mesh.cli.output import Output, show_json, show_table

if TYPE_CHECKING:
    from mesh.receiver.checking import Found
    from mesh.settings import Settings

FileArgument = Annotated[Path, typer.Argument(help="An app.", exists=True, dir_okay=False)]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="An app's text")(check)


def check(
    file: FileArgument, config: ConfigOption = None, output: OutputOption = Output.TEXT
) -> None:
    """Open each source and sink of an app from this machine, and read a sample.

    Run it where a worker runs, with the worker's settings: files, addresses and references are that
    worker's. Nothing is stored, sent or acknowledged. The exit code is 1 if one can't be opened.

    Example: `mesh check app.siddhi --config conf/mesh.yaml`
    """
    from mesh import settings

    text = file.read_text("utf-8")
    found = asyncio.run(_check(text, settings.load(config)))
    if output is Output.JSON:
        show_json([asdict(one) for one in found])
    else:
        show_table(
            ("stream", "source or sink", "address", "result"),
            [(one.stream, one.name, one.endpoint or None, _result(one)) for one in found],
        )
        for one in found:
            for event in one.sample:
                typer.echo(f"{one.stream}: {event}")
            for reason in one.refused:
                typer.echo(f"{one.stream}: can't be read: {reason}")
    if any(one.problem for one in found):
        raise typer.Exit(1)


def _result(one: Found) -> str:
    if one.problem:
        return one.problem
    if one.sample or one.refused:
        return f"opens; {len(one.sample)} of {len(one.sample) + len(one.refused)} can be read"
    return "opens"


async def _check(text: str, given: Settings) -> list[Found]:
    from mesh.jetstream.connection import close, connect
    from mesh.receiver.checking import check_app
    from mesh.receiver.host import environment_of
    from mesh.worker.protocol import SessionConfig

    client = await connect(given.nats, "mesh check")
    try:
        config = SessionConfig("mesh-check", "", given)
        return await check_app(text, environment_of(config, client, lambda _: None))
    finally:
        await close(client)
