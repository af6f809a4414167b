"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mesh.cli import context
from mesh.cli.client import Client
from mesh.cli.output import Output

if TYPE_CHECKING:
    from mesh.cli.context import Context

_PANEL = "Where the cluster is"

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server", envvar="MESH_SERVER", metavar="URL", rich_help_panel=_PANEL,
        help="A manager's REST API, as in https://localhost:9543.",
    ),
]  # fmt: skip
UserOption = Annotated[
    str | None,
    typer.Option("--user", envvar="MESH_USER", rich_help_panel=_PANEL, help="User name."),
]
PasswordOption = Annotated[
    str | None,
    typer.Option(
        "--password", envvar="MESH_PASSWORD", rich_help_panel=_PANEL,
        help="Password; better in the environment, where other users don't see it.",
    ),
]  # fmt: skip
CaOption = Annotated[
    str | None,
    typer.Option(
        "--ca", envvar="MESH_CA", metavar="FILE", rich_help_panel=_PANEL,
        help="Certificate that the manager's is signed with.",
    ),
]  # fmt: skip
InsecureOption = Annotated[
    bool | None,
    typer.Option("--insecure", "-k", rich_help_panel=_PANEL, help="Take any certificate."),
]
NatsOption = Annotated[
    str | None,
    typer.Option(
        "--nats", envvar="MESH_NATS_URL", metavar="URL", rich_help_panel=_PANEL,
        help="NATS, as in nats://localhost:4222.",
    ),
]  # fmt: skip
ContextOption = Annotated[
    Path | None,
    typer.Option(
        "--context", metavar="FILE", rich_help_panel=_PANEL,
        help="Context file that 'mesh dev' wrote; the last one of this user by default.",
    ),
]  # fmt: skip
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings, in the form of conf/mesh.yaml."),
]
FileArgument = Annotated[
    Path, typer.Argument(help="SiddhiQL text, '-' for standard input.", metavar="FILE")
]
AppArgument = Annotated[str, typer.Argument(help="Name of the app.", metavar="APP")]


def connect(
    server: str | None,
    user: str | None,
    password: str | None,
    ca: str | None,
    insecure: bool | None,
    file: Path | None,
) -> Client:
    """The client of the cluster that the options, the environment or the context file name."""
    return Client(where(server, user, password, ca, insecure, file))


def where(
    server: str | None,
    user: str | None,
    password: str | None,
    ca: str | None,
    insecure: bool | None,
    file: Path | None,
    nats: str | None = None,
) -> Context:
    """The context that the options, the environment or the context file name."""
    given = {
        "server": server,
        "user": user,
        "password": password,
        "ca": ca,
        "insecure": insecure,
        "nats": nats,
    }
    return context.find(given, file)
