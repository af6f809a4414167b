"""``mesh datacenter``: the inputs of apps in a second datacenter, mirrored and taken over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

# typer reads the annotations when the command line is built.
from mesh.cli.options import ConfigOption, FileArgument  # noqa: TC001
from mesh.cli.output import read_source, show_table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from nats.aio.client import Client

    from mesh.jetstream.datacenters import FollowedStream
    from mesh.model.app import AppSpec
    from mesh.settings import ChannelSettings

    Work = Callable[[Client, AppSpec, ChannelSettings], Awaitable[list[FollowedStream]]]

DomainOption = Annotated[
    str, typer.Option(metavar="NAME", help="JetStream domain of the first datacenter.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    commands = typer.Typer(no_args_is_help=True, help="Inputs of apps in a second datacenter.")
    commands.command("follow")(follow)
    commands.command("promote")(promote)
    app.add_typer(commands, name="datacenter", rich_help_panel="Parts of a cluster")


def follow(file: FileArgument, domain: DomainOption, config: ConfigOption = None) -> None:
    """Mirror the inputs of an app from another datacenter; again, to show how far they are.

    It connects to the NATS of this datacenter with a manager's settings.

    Example: `mesh datacenter follow counts.siddhi --domain east --config west.yaml`
    """
    from mesh.jetstream import datacenters

    async def work(
        client: Client, spec: AppSpec, settings: ChannelSettings
    ) -> list[FollowedStream]:
        return await datacenters.follow(client, spec, domain, settings)

    _show(_run(file, config, work))


def promote(file: FileArgument, config: ConfigOption = None) -> None:
    """Make the mirrored inputs of an app accept events: the other datacenter is lost.

    Example: `mesh datacenter promote counts.siddhi --config west.yaml`
    """
    from mesh.jetstream import datacenters

    _show(_run(file, config, datacenters.promote))


def _run(file: Path, config: Path | None, work: Work) -> list[FollowedStream]:
    from mesh import settings
    from mesh.cli.options import stem_of
    from mesh.jetstream.connection import close, connect
    from mesh.language.naming import named
    from mesh.plan.build import plan

    loaded, spec = settings.load(config), plan(named(read_source(file), stem_of(file))).spec

    async def run() -> list[FollowedStream]:
        client = await connect(loaded.nats, "mesh datacenters")
        try:
            return await work(client, spec, loaded.channels)
        finally:
            await close(client)

    return asyncio.run(run())


def _show(streams: list[FollowedStream]) -> None:
    rows: list[tuple[object, ...]] = []
    for one in streams:
        last_seen = f"{one.silent_s:.1f} s ago" if one.silent_s >= 0 else "never"
        there: int | str = "no answer"
        if one.origin is not None:
            there = one.origin.last_sequence if one.origin.created else "no stream"
        follows = (
            (one.domain, there, one.lag, last_seen) if one.domain else ("nothing", *[None] * 3)
        )
        rows.append((one.name, one.last_sequence, *follows))
    show_table(("stream", "last", "follows", "last there", "lag", "heard"), rows)
