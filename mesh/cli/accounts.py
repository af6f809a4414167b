"""``mesh user``, ``mesh token`` and ``mesh audit``: users of the REST API and their requests.

``mesh login`` and ``mesh logout``, without the HTTP client until they run.

``mesh secret``: values that texts refer to as ``${secret:name}``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mesh.cli.options import CommandClient, OutputOption, takes_cluster
from mesh.cli.output import Output, show, show_rows

if TYPE_CHECKING:
    from mesh.client import ClientContext
    from mesh.model.values import JsonObject


_PANEL = "Users"

user_commands = typer.Typer(no_args_is_help=True, help="Users of the REST API.")
token_commands = typer.Typer(no_args_is_help=True, help="API tokens of programs.")

_MayOption = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="Roles (viewer, developer, operator, admin) and permissions, comma-separated; "
        "view, manage and monitor stand for sets; default: all.",
    ),
]
_AppsOption = Annotated[
    str, typer.Option(metavar="PATTERN", help="Apps that they hold for, as in 'Shop*'.")
]

secret_commands = typer.Typer(no_args_is_help=True, help="Secrets of apps.")

_NameArgument = Annotated[str, typer.Argument(help="Name of the secret.")]

_SecretAppsOption = Annotated[
    str,
    typer.Option(
        "--apps",
        metavar="PATTERNS",
        help="Apps that may use it, comma-separated, with `*`; every app without it.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    user_commands.command("add")(add_user)
    user_commands.command("list")(list_users)
    user_commands.command("rm")(remove_user)
    token_commands.command("add")(add_token)
    token_commands.command("list")(list_tokens)
    token_commands.command("rm")(remove_token)
    app.add_typer(user_commands, name="user", rich_help_panel=_PANEL)
    app.add_typer(token_commands, name="token", rich_help_panel=_PANEL)
    app.command(rich_help_panel=_PANEL)(audit)
    app.command(rich_help_panel="Users")(login)
    app.command(rich_help_panel="Users")(logout)
    secret_commands.command("set")(set_secret)
    secret_commands.command("list")(list_secrets)
    secret_commands.command("rm")(remove_secret)
    app.add_typer(secret_commands, name="secret", rich_help_panel="Users")


@takes_cluster
def add_user(
    name: Annotated[str, typer.Argument(help="User name.")],
    *,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="A users file, which manager.users_file names, instead."),
    ] = None,
    new_password: Annotated[
        str,
        typer.Option(
            envvar="MESH_NEW_PASSWORD",
            prompt="Password of the new user",
            hide_input=True,
            confirmation_prompt=True,
            help="The command asks for it if it is not in the environment.",
        ),
    ] = "",
    may: _MayOption = None,
    apps: _AppsOption = "*",
    at: ClientContext,
) -> None:
    """Add a user that every manager knows at once, or change its password and permissions.

    With --file the user is of that file. The first user of a cluster is made with the token that
    the manager has logged: MESH_TOKEN.

    Example: `mesh user add ada --may developer --apps 'Shop*'`
    """
    from mesh.model.access import read_permissions

    if file is not None:
        from mesh.api import users

        permissions = read_permissions(may) if may is not None else None
        users.check_password(name, new_password)
        is_new = users.add(file, name, new_password, permissions)
        typer.echo(f'user "{name}" {"added to" if is_new else "has a new password in"} {file}')
        return
    words = sorted(read_permissions(may or ""))
    with CommandClient(at) as client:
        client.put_user(name, password=new_password, may=words, apps=apps)
    typer.echo(f'user "{name}" may {", ".join(words)} for apps {apps}')


@takes_cluster
def list_users(*, output: OutputOption = Output.TEXT, at: ClientContext) -> None:
    """List the users of the cluster's directory; those of users files are not shown."""
    with CommandClient(at) as client:
        entries = client.users()
    rows = [{"user": one["name"], **_shown(one["grants"])} for one in entries]
    _show(output, entries, rows)


@takes_cluster
def remove_user(
    name: Annotated[str, typer.Argument(help="User name.")], *, at: ClientContext
) -> None:
    """Remove a user and its tokens, at every manager at once."""
    with CommandClient(at) as client:
        client.delete_user(name)
    typer.echo(f'user "{name}" is removed')


@takes_cluster
def add_token(
    name: Annotated[str, typer.Argument(help="What it is for.")],
    *,
    days: Annotated[int, typer.Option(min=1, max=366, help="Days until it expires.")] = 30,
    may: _MayOption = None,
    apps: _AppsOption = "*",
    at: ClientContext,
) -> None:
    """Make an API token with at most your own permissions. It is printed once, and not stored.

    Example: `mesh token add deploys --may developer --apps 'Shop*' --days 90`
    """
    from mesh.model.access import read_permissions

    words = sorted(read_permissions(may or ""))
    with CommandClient(at) as client:
        typer.echo(client.make_token(name, days=days, may=words, apps=apps)["token"])


@takes_cluster
def list_tokens(*, output: OutputOption = Output.TEXT, at: ClientContext) -> None:
    """List your tokens; those of all users with the permission `admin`."""
    with CommandClient(at) as client:
        tokens = client.tokens()
    rows = [
        {
            "id": one["id"],
            "user": one["user"],
            "name": one["name"],
            **_shown([one["grant"]]),
            "expires": _time(one["expires_ms"]),
        }
        for one in tokens
    ]
    _show(output, tokens, rows)


@takes_cluster
def remove_token(
    id: Annotated[str, typer.Argument(help="Id of the token.")], *, at: ClientContext
) -> None:
    """Revoke a token."""
    with CommandClient(at) as client:
        client.delete_token(id)
    typer.echo(f"token {id} is revoked")


@takes_cluster
def audit(
    *,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Number of entries.")] = 50,
    of: Annotated[str, typer.Option("--of", help="Entries of this user only.")] = "",
    output: OutputOption = Output.TEXT,
    at: ClientContext,
) -> None:
    """Show who asked for what, from where, and with which result, the newest last."""
    with CommandClient(at) as client:
        entries = client.audit(limit=limit, user=of)
    rows = [
        {
            "time": _time(one["at_ms"]),
            "user": one["user"],
            "how": one["how"],
            "from": one["source"],
            "request": f"{one['method']} {one['path']}",
            "status": one["status"],
            "times": one.get("count", 1),
        }
        for one in entries
    ]
    _show(output, entries, rows)


def _show(output: Output, answer: object, rows: list[JsonObject]) -> None:
    columns = list(rows[0]) if rows else []
    show_rows(output, answer, columns, [list(row.values()) for row in rows])


def _shown(grants: list[JsonObject]) -> dict[str, str]:
    return {
        "may": "; ".join(" ".join(one["may"]) for one in grants),
        "apps": "; ".join(one["apps"] for one in grants),
    }


def _time(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))


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


@takes_cluster
def set_secret(name: _NameArgument, *, apps: _SecretAppsOption = "", at: ClientContext) -> None:
    """Store a secret; its value is asked for, or read from standard input.

    Sources and sinks get it for `${secret:NAME}` in an option when they start.

    Example: `mesh secret set broker.password --apps 'Shop*' < password.txt`
    """
    if sys.stdin.isatty():
        value = typer.prompt("Value", hide_input=True, confirmation_prompt=True)
    else:
        value = sys.stdin.read().removesuffix("\n")
    with CommandClient(at) as client:
        client.put_secret(name, value, apps=apps)
    typer.echo(f'secret "{name}" is stored')


@takes_cluster
def list_secrets(*, output: OutputOption = Output.TEXT, at: ClientContext) -> None:
    """List the names of secrets, with their apps; values are shown to no user."""
    with CommandClient(at) as client:
        entries = client.secrets()
    show(output, entries, "\n".join(f"{one['name']}  {one['apps']}" for one in entries))


@takes_cluster
def remove_secret(name: _NameArgument, *, at: ClientContext) -> None:
    """Remove a secret; instances that run keep theirs until they start again."""
    with CommandClient(at) as client:
        client.delete_secret(name)
    typer.echo(f'secret "{name}" is removed')
