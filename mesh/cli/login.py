"""``mesh login`` and ``mesh logout``, without the HTTP client until they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mesh.cli.options import takes_cluster

if TYPE_CHECKING:
    from mesh.client import ClientContext


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel="Users")(login)
    app.command(rich_help_panel="Users")(logout)


@takes_cluster
def login(
    *,
    browser: Annotated[
        bool, typer.Option("--browser", help="Use this machine's browser, not a device code.")
    ] = False,
    at: ClientContext,
) -> None:
    """Sign in by the identity provider of the cluster; other commands use the token until logout.

    The tokens are in a file that its owner alone may read, beside the context file.

    Example: `mesh login --server https://mesh.example:9543`
    """
    from mesh.cli.signing_in import sign_in

    sign_in(at, browser=browser)


@takes_cluster
def logout(*, at: ClientContext) -> None:
    """Forget the tokens of `mesh login` for the cluster, and withdraw them at the provider."""
    from mesh.cli.signing_in import sign_out

    sign_out(at)
