"""Options shared by several commands.

Values for the ``${NAME}`` of a text: ``--var NAME=VALUE`` first, then the environment.
"""

from __future__ import annotations

import functools
import inspect
import re
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mesh import mesh_name
from mesh.cli.output import Output
from mesh.client import ClientContext, context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


VarOption = Annotated[
    list[str] | None,
    typer.Option(
        "--var", metavar="NAME=VALUE",
        help="Value of ${NAME} in the text, repeatable; default: the environment's.",
    ),
]  # fmt: skip
NameOption = Annotated[
    str | None,
    typer.Option(
        "--name", metavar="APP",
        help="Name of the app, if its text has no @App:name; default: the file's, without suffix.",
    ),
]  # fmt: skip


def app_token(app: str | None) -> str | None:
    """The name of an app as it is in subjects, paths and keys; a callback of each such name."""
    from mesh.model import names

    return app and names.app_token(app)


_PANEL = "Address of the cluster"

_ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server", envvar=context.VARIABLES["server"], metavar="URL", rich_help_panel=_PANEL,
        help="URL of a manager's REST API, as in https://localhost:9543.",
    ),
]  # fmt: skip
_UserOption = Annotated[
    str | None,
    typer.Option(
        "--user", envvar=context.VARIABLES["user"], rich_help_panel=_PANEL, help="User name."
    ),
]
_PasswordOption = Annotated[
    str | None,
    typer.Option(
        "--password", envvar=context.VARIABLES["password"], rich_help_panel=_PANEL,
        help="Password; the environment hides it from other users.",
    ),
]  # fmt: skip
_TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token", envvar=context.VARIABLES["token"], rich_help_panel=_PANEL,
        help="API token, in place of user and password.",
    ),
]  # fmt: skip
_CaOption = Annotated[
    str | None,
    typer.Option(
        "--ca", envvar=context.VARIABLES["ca"], metavar="FILE", rich_help_panel=_PANEL,
        help="Certificate of the authority that signed the manager's.",
    ),
]  # fmt: skip
_InsecureOption = Annotated[
    bool | None,
    typer.Option("--insecure", "-k", rich_help_panel=_PANEL, help="Accept any certificate."),
]
_NatsOption = Annotated[
    str | None,
    typer.Option(
        "--nats", envvar=context.VARIABLES["nats"], metavar="URL", rich_help_panel=_PANEL,
        help="URL of NATS, as in nats://localhost:4222.",
    ),
]  # fmt: skip
_ContextOption = Annotated[
    Path | None,
    typer.Option(
        "--context", metavar="FILE", rich_help_panel=_PANEL,
        help="Context file that 'mesh dev' wrote; the last one of this user by default.",
    ),
]  # fmt: skip
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings, in the form of conf/mesh.yaml."),
]
FileArgument = Annotated[
    Path, typer.Argument(help="SiddhiQL text, '-' for standard input.", metavar="FILE")
]
FilesArgument = Annotated[
    list[Path],
    typer.Argument(help="SiddhiQL texts, '-' for standard input.", metavar="FILE..."),
]
AppArgument = Annotated[
    str, typer.Argument(help="Name of the app.", metavar="APP", callback=app_token)
]  # fmt: skip

#: Parameters with the cluster's address, in the order of ``--help``.
_CLUSTER = {
    "server": _ServerOption,
    "user": _UserOption,
    "password": _PasswordOption,
    "token": _TokenOption,
    "ca": _CaOption,
    "insecure": _InsecureOption,
    "context": _ContextOption,
}


def takes_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options for the cluster's address.

    The command has one keyword parameter for all of them, ``at: Context``, built from the options,
    the environment and the context file.  ``--help`` lists them at the position of ``at`` among the
    parameters.

    Raises:
        MeshError: as ``context.find``, when the command is called.
    """
    return _with_options(command, _CLUSTER)


def takes_cluster_and_nats(command: Callable[..., None]) -> Callable[..., None]:
    """As ``takes_cluster``, for a command that connects to NATS."""
    return _with_options(command, {**_CLUSTER, "nats": _NatsOption})


def _with_options(command: Callable[..., None], options: dict[str, Any]) -> Callable[..., None]:
    @functools.wraps(command)
    def with_context(**arguments: Any) -> None:
        named = {name: arguments.pop(name) for name in options}
        file = named.pop("context")
        at = context.find(named, file)
        if at.mesh:
            mesh_name.use(at.mesh)
        command(at=at, **arguments)

    # A command's module imports Context for the type checker alone.
    taken = inspect.signature(command, eval_str=True, locals={"ClientContext": ClientContext})
    parameters: list[Parameter] = []
    for parameter in taken.parameters.values():
        if parameter.name != "at":
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))
            continue
        parameters.extend(
            Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for name, annotation in options.items()
        )
    with_context.__signature__ = taken.replace(parameters=parameters)  # type: ignore[attr-defined]  # PEP 362
    with_context.__annotations__ = {one.name: one.annotation for one in parameters}
    return with_context


def parse_variables(options: Iterable[str] | None) -> dict[str, str]:
    """The values of ``--var`` options; the last one of a name counts."""
    values = {}
    for option in options or ():
        name, equals, value = option.partition("=")
        if not equals or not re.fullmatch(r"\w+", name):
            raise typer.BadParameter(f"'{option}' is not NAME=VALUE", param_hint="--var")
        values[name] = value
    return values


def filled(text: str, variables: Mapping[str, str], file: Path, name: str | None = None) -> str:
    """A text with values in the place of its ``${NAME}``: given ones, else the environment's.

    A text without a name gets ``name``, else the one of its file.
    """
    # Most commands have this module and no text.
    from mesh.client.checking import typed
    from mesh.language.naming import named
    from mesh.language.substitution import substitute, variables_for

    return named(typed(substitute(text, variables_for(text, variables))), name or stem_of(file))


def stem_of(file: Path) -> str:
    """The name of the app in a file whose text has none; empty for standard input."""
    return "" if str(file) == "-" else file.stem
