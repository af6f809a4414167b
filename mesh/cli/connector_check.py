"""``mesh check``: opens the sources, sinks and stores of an app where they would be used."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Annotated

import typer

from mesh.cli.options import (
    CommandClient,
    ConfigOption,
    FileArgument,
    OutputOption,
    VarOption,
    filled,
    parse_variables,
    takes_cluster,
)
from mesh.cli.output import Output, pointing_at, read_source, show_json, show_table
from mesh.processes.progress import working

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from mesh.client import ClientContext
    from mesh.model.values import JsonObject


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="An app's text")(check)


@takes_cluster
def check(
    file: FileArgument,
    local: Annotated[
        bool, typer.Option("--local", help="From this machine, though there is a cluster.")
    ] = False,
    config: ConfigOption = None,
    var: VarOption = None,
    *,
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """Open each source, sink and store of an app where it would run, and read a sample.

    In a cluster its workers do so. Without one, with `--local` or with `--config`, this machine
    does: with a worker's settings, whose files, addresses and references are then that worker's.
    Nothing is stored, sent or acknowledged. The exit code is 1 if one can't be opened.

    Example: `mesh check app.siddhi`, or `mesh check app.siddhi --config conf/mesh.yaml`
    """
    source = read_source(file)
    with pointing_at(file, source, output):
        outcomes = _outcomes(filled(source, parse_variables(var), file), at, local, config)
    if output is Output.JSON:
        show_json(outcomes)
    elif not outcomes:
        typer.echo("the app has no source, no sink and no store")
    else:
        _show(outcomes)
    if any(one["problem"] for one in outcomes):
        raise typer.Exit(1)


def _outcomes(text: str, at: ClientContext, local: bool, config: Path | None) -> list[JsonObject]:
    """The checks of a cluster's workers, or of this machine."""
    if at.server and not local and config is None:
        with working("workers open sources, sinks and stores"), CommandClient(at) as client:
            return client.check(text)
    from mesh import settings
    from mesh.receiver.check_once import results
    from mesh.worker import store_secrets
    from mesh.worker.protocol import SessionConfig

    session = SessionConfig("mesh-check", "", settings.load(config))
    with (
        working("sources, sinks and stores are opened, one after the other"),
        _environment(store_secrets.variables(session.settings)),
    ):
        return asyncio.run(results(session, text))


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """The environment that the processes of a worker have."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _show(outcomes: list[JsonObject]) -> None:
    show_table(
        ("stream or table", "part", "address", "worker", "result"),
        [
            (one["stream"], one["name"], one["endpoint"] or None, one.get("worker") or None,
             _result(one))
            for one in outcomes
        ],
    )  # fmt: skip
    for one in outcomes:
        for event in one["sample"]:
            typer.echo(f"{one['stream']}: {event}")
        for reason in one["refused"]:
            typer.echo(f"{one['stream']}: can't be read: {reason}")


def _result(one: JsonObject) -> str:
    if one["problem"]:
        return str(one["problem"])
    if one["sample"] or one["refused"]:
        count = len(one["sample"])
        return f"opens; {count} of {count + len(one['refused'])} can be read"
    return "opens"
