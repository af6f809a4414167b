"""Options shared by several commands.

Values for the ``${NAME}`` of a text: ``--var NAME=VALUE`` first, then the environment.

Client of commands: its requests and waits show their progress.
"""

from __future__ import annotations

import functools
import inspect
import re
import socket
import time
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mesh import client, mesh_name
from mesh.cli.output import Output
from mesh.client import ClientContext, context
from mesh.client.context import is_loopback
from mesh.processes.progress import working

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import httpx

    from mesh.model.answers import StatusAnswer
    from mesh.model.values import JsonMapping, JsonObject

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


#: Interval at which a manager that starts is asked, seconds.
_LOOK_S: Final = 0.2


class CommandClient(client.Client):
    """One cluster's API; what takes long is shown on standard error."""

    #: Between two lines of progress.
    poll_s = 2.0

    def wait_running(
        self, app: str, timeout_s: float, note: Callable[[StatusAnswer], None] | None = None
    ) -> StatusAnswer:
        """The status once the app runs, or after ``timeout_s``."""
        with working(f'app "{app}" starts', at_most_s=timeout_s) as work:

            def show(status: StatusAnswer) -> None:
                states = [one["state"] for one in status["instances"]]
                reason = f": {status['reason']}" if status.get("reason") else ""
                message = f'app "{app}" is {status["state"]}{reason}'
                # Further instances that run say nothing about the one that waits.
                is_open = status["state"] in ("waiting", "failing")
                work.tell(message, states.count("running"), 0 if is_open else len(states))

            return super().wait_running(app, timeout_s, note or show)

    def wait_until_up(self, limit_s: float) -> None:
        """Wait for a manager on this machine that does not listen yet.

        Another machine's manager is not waited for: a wrong address is more likely.
        """
        if not is_loopback(self.server) or self._listens():
            return
        deadline_s = time.monotonic() + limit_s
        with working(f"the manager at {self.server} starts", at_most_s=limit_s):
            while time.monotonic() < deadline_s and not self._listens():
                time.sleep(_LOOK_S)

    def _listens(self) -> bool:
        """Whether the manager's port is bound; a certificate that does not fit is no reason."""
        url = self._http.base_url
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            socket.create_connection((url.host, port), timeout=2).close()
        except OSError:
            return False
        return True

    def _send(self, request: httpx.Request) -> httpx.Response:
        with working(f"the manager answers {request.method} {request.url.path}"):
            return super()._send(request)


def with_status(client: CommandClient, done: JsonMapping, app: str, timeout_s: float) -> JsonObject:
    """An outcome with the status of its app, and whether it runs; as it is without a time."""
    if not timeout_s:
        return dict(done)
    status = client.wait_running(app, timeout_s)
    return {**done, "status": status, "running": status["state"] == "running"}
