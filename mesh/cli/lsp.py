"""``mesh lsp``: the language server of editors."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

import typer

from mesh.cli.options import VarOption, parse_variables, takes_cluster
from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.client.context import ClientContext
    from mesh.language_service.proposals import ClusterStream

#: Apps of the cluster whose streams are proposed.
_APPS_MAX = 50
#: Time of the history in which the present rate is looked for.
_RATE_S = 60.0


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="An app's text")(lsp)


@takes_cluster
def lsp(*, at: ClientContext, var: VarOption = None) -> None:
    """Serve editors over standard input and output; needs the extra `lsp`.

    Errors, completion, hover, definitions, references, rename, formatting, symbols, fixes, types
    and plans of SiddhiQL, by the Language Server Protocol. If a cluster can be reached, its streams
    are proposed. An editor starts the command; see docs/editor.md.

    Example: `mesh lsp --var THRESHOLD=30`
    """
    if find_spec("pygls") is None:
        raise MeshError(
            "MESH-U185",
            "the package pygls is not installed",
            hint="Run: pip install 'nats-event-mesh[lsp]'",
        )
    from mesh.cli.language_server import serve

    serve(parse_variables(var), lambda: streams_of(at), partial(rates_of, at))


def streams_of(context: ClientContext) -> list[ClusterStream]:
    """The streams of the apps of a cluster; none if it can't be reached or asked."""
    import httpx

    from mesh.client import Client
    from mesh.language_service.proposals import ClusterStream

    try:
        with Client(context) as client:
            streams = []
            for app in [status["app"] for status in client.apps()[:_APPS_MAX]]:
                for name, types in client.app(app)["streams"].items():
                    shown = ", ".join(f"{attribute} {kind}" for attribute, kind in types.items())
                    streams.append(ClusterStream(app, name, shown))
            return streams
    except (MeshError, httpx.HTTPError):
        return []


def rates_of(context: ClientContext, app: str, groups: Iterable[str]) -> dict[str, float]:
    """Events a second that groups of an app read now; none of an app that does not run there."""
    import httpx

    from mesh.client import Client

    rates: dict[str, float] = {}
    try:
        with Client(context) as client:
            for group in groups:
                past = client.history(app=app, group=group, seconds=_RATE_S, step=_RATE_S / 6)
                known = [one for one in past["values"].get("events_in", ()) if one is not None]
                if known:
                    rates[group] = known[-1]
    except (MeshError, httpx.HTTPError):
        pass
    return rates
