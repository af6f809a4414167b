"""Address of the cluster for commands: options, environment, context file.

``mesh dev`` writes a context file into its data directory and into the user's configuration
directory, so that ``mesh deploy`` in another terminal finds it.  It holds a password, so only its
owner may read it.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import orjson

from mesh import settings
from mesh.errors import MeshError
from mesh.files.private_files import user_directory, write_private
from mesh.settings import NatsSettings

if TYPE_CHECKING:
    from mesh.model.values import JsonObject

#: What says who the user is; it belongs to the server of its source.
_WHO: Final = ("user", "password", "token", "ca", "insecure")
#: Of ``mesh dev`` alone.
_OF_DEV: Final = ("data", "publisher", "reader")
#: The settings of NATS that say who connects, and how.
_NATS: Final = (
    "user", "password", "creds", "nkey_seed_file", "tls_ca", "tls_cert", "tls_key", "tls_first",
    "inbox_prefix", "js_domain",
)  # fmt: skip


#: Variables of the environment, by field of a context.
VARIABLES: Final = {
    "server": "MESH_SERVER", "user": "MESH_USER", "password": "MESH_PASSWORD",
    "token": "MESH_TOKEN", "ca": "MESH_CA", "nats": "MESH_NATS_URL",
}  # fmt: skip
#: File of the tokens of 'mesh login', beside that of the contexts.
LOGINS: Final = "logins.json"


@dataclass(frozen=True, slots=True)
class ClientContext:
    """Address and credentials of one cluster."""

    #: ``https://host:port`` of any manager.
    server: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    #: An API token or a provider's token, in place of user and password.
    token: str = field(default="", repr=False)
    #: Path of the certificate that the manager's is signed with; empty for the system's.
    ca: str = ""
    #: Accept any certificate.
    insecure: bool = False
    #: ``nats://host:port``, for publish and tap.
    nats: str = ""
    nats_user: str = ""
    nats_password: str = field(default="", repr=False)
    #: Paths of a credentials file, and of the certificate authority.
    nats_creds: str = ""
    nats_tls_ca: str = ""
    nats_nkey_seed_file: str = ""
    nats_tls_cert: str = ""
    nats_tls_key: str = ""
    nats_tls_first: bool = False
    nats_inbox_prefix: str = ""
    nats_js_domain: str = ""
    #: Of ``mesh dev``: its directory, and the URLs of NATS for a publisher and a reader.
    data: str = ""
    publisher: str = field(default="", repr=False)
    reader: str = field(default="", repr=False)
    #: Path of the file with the tokens of 'mesh login'; empty if others are given.
    login: str = field(default="", repr=False, compare=False)
    #: Name of the mesh, for publish and tap; empty for that of the environment.
    mesh: str = ""

    @property
    def nats_settings(self) -> NatsSettings:
        """The settings of a connection to NATS."""
        values = {name: getattr(self, f"nats_{name}") for name in _NATS}
        return NatsSettings(url=self.nats, **values)


def config_path() -> Path:
    """The user's context file."""
    return user_directory() / "context.json"


def find(options: dict[str, Any], file: Path | None = None) -> ClientContext:
    """The context; values that are None in ``options`` are read from the context file.

    The file is ``file`` if named, else ``MESH_CONTEXT``, else ``.mesh/dev/context.json`` here or
    the user's.  The file here counts only if it is of a cluster on this machine, which ``mesh dev``
    started, and if no credentials are given: a foreign directory must not choose who gets them.

    Credentials are those of the source that names the server: of ``options`` and environment, or
    of the file.  User and password in ``options`` also apply to the server of the user's own file.
    A login for the server (``mesh login``) counts before what a context file has.

    Raises:
        MeshError: MESH-U130 if the named file doesn't exist or can't be read.
    """
    named = file or (Path(os.environ["MESH_CONTEXT"]) if os.environ.get("MESH_CONTEXT") else None)
    values = {name: value for name, value in options.items() if value is not None}
    base = ClientContext()
    if named:
        base = _read(named)
    elif "server" not in values:
        base = _here(values) or (_read(config_path()) if config_path().exists() else base)
    if values.get("server", base.server) != base.server:
        base = replace(base, **{name: getattr(ClientContext(), name) for name in (*_WHO, *_OF_DEV)})
    if values.get("nats", base.nats) != base.nats:
        nats = settings.load().nats
        base = replace(base, **{f"nats_{name}": getattr(nats, name) for name in _NATS})
        base = replace(base, publisher="", reader="")
    context = replace(base, **values)
    if any(name in values for name in ("user", "password", "token")):
        return context
    return replace(context, login=str((named or config_path()).parent / LOGINS))


def address(**options: object) -> ClientContext:
    """The context of a program: of ``options``, the environment and the context file; see ``find``.

    Values that are None are those of ``MESH_SERVER``, ``MESH_USER``, ``MESH_PASSWORD``,
    ``MESH_TOKEN``, ``MESH_CA`` and ``MESH_NATS_URL``.
    """
    values = {
        name: options.get(name) if options.get(name) is not None else os.environ.get(variable)
        for name, variable in VARIABLES.items()
    }
    return find({**options, **values})


def _here(values: JsonObject) -> ClientContext | None:
    """The context of a cluster in this directory: of ``mesh dev``, or the development stack."""
    paths = (Path(".mesh", folder, "context.json") for folder in ("dev", "stack"))
    path = next((path for path in paths if path.exists()), None)
    if path is None or any(name in values for name in _WHO):
        return None
    info = path.lstat()
    if not stat.S_ISREG(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o022:
        return None
    context = _read(path)
    is_local = all(is_loopback(url) for url in (context.server, *context.nats.split(",")))
    return context if is_local else None


def is_loopback(url: str) -> bool:
    """Whether a URL, which may be empty, leads to this machine."""
    try:
        host = urlsplit(url).hostname or ""
        return not url or host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def described(context: ClientContext) -> list[str]:
    """Address and logins of a cluster, a line each, with their passwords."""
    certificate = f"  (certificate {context.ca})" if context.ca else ""
    server = context.server and f"{context.server}{certificate}"
    user = (
        context.user and f"{context.user}  password {context.password or 'is not in the context'}"
    )
    lines = (
        ("data and logs", context.data),
        ("NATS publisher", context.publisher),
        ("NATS reader", context.reader),
        ("NATS", "" if context.publisher else context.nats),
        ("REST API", server),
        ("user", user),
    )
    return [f"{name:<15}{value}" for name, value in lines if value]


def write(context: ClientContext, path: Path) -> None:
    """Write the context file, readable by its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {name: value for name, value in asdict(context).items() if name != "login"}
    write_private(path, orjson.dumps(values, option=orjson.OPT_INDENT_2).decode() + "\n")


def remove(context: ClientContext, path: Path) -> None:
    """Remove the context file if it still describes this cluster."""
    try:
        if _read(path) == context:
            path.unlink()
    except (MeshError, FileNotFoundError):
        # Removed already, or written by another process.
        return


def _read(path: Path) -> ClientContext:
    try:
        values = orjson.loads(path.read_bytes())
        names = {f.name for f in fields(ClientContext)}
        return ClientContext(**{name: value for name, value in values.items() if name in names})
    except (OSError, orjson.JSONDecodeError, AttributeError) as error:
        raise MeshError(
            "MESH-U130", f'context file "{path}" can\'t be read', detail=f"{error}."
        ) from error
