"""Address of the cluster for commands: options, environment, context file.

``mesh dev`` writes a context file into its data directory and into the user's configuration
directory, so that ``mesh deploy`` in another terminal finds it.  It holds a password, so only its
owner may read it.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import orjson

from mesh.errors import MeshError


@dataclass(frozen=True, slots=True)
class Context:
    """Address and credentials of one cluster."""

    #: ``https://host:port`` of any manager.
    server: str = ""
    user: str = ""
    password: str = ""
    #: Path of the certificate that the manager's is signed with; empty for the system's.
    ca: str = ""
    #: Accept any certificate.
    insecure: bool = False
    #: ``nats://host:port``, for publish and tap.
    nats: str = ""


def config_path() -> Path:
    """The user's context file."""
    below = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(below, "mesh", "context.json")


def find(given: dict[str, Any], file: Path | None = None) -> Context:
    """The context; values that are None in ``given`` are read from the context file.

    The file is ``file`` if named, else ``MESH_CONTEXT``, else ``.mesh/dev/context.json`` here or
    the user's.

    Raises:
        MeshError: MESH-U130 if the named file doesn't exist or can't be read.
    """
    named = file or (Path(os.environ["MESH_CONTEXT"]) if os.environ.get("MESH_CONTEXT") else None)
    candidates = [named] if named else [Path(".mesh", "dev", "context.json"), config_path()]
    values = {name: value for name, value in given.items() if value is not None}
    base = Context()
    # The user and certificate of the context file belong to its own server only.
    if "server" not in values or named:
        found = next((c for c in candidates if c.exists()), named)
        base = _read(found) if found else base
    return replace(base, **values)


def write(context: Context, path: Path) -> None:
    """Write the context file, readable by its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # mkstemp creates the file with mode 0600; the rename is atomic for readers.
    descriptor, made = tempfile.mkstemp(dir=path.parent, prefix=".context-")
    with os.fdopen(descriptor, "wb") as file:
        file.write(orjson.dumps(asdict(context), option=orjson.OPT_INDENT_2) + b"\n")
    Path(made).replace(path)


def remove(context: Context, path: Path) -> None:
    """Remove the context file if it still describes this cluster."""
    try:
        if _read(path) == context:
            path.unlink()
    except (MeshError, FileNotFoundError):
        # Removed already, or written by another process.
        return


def _read(path: Path) -> Context:
    try:
        values = orjson.loads(path.read_bytes())
        known = {f.name for f in fields(Context)}
        return Context(**{name: value for name, value in values.items() if name in known})
    except (OSError, orjson.JSONDecodeError, AttributeError) as error:
        raise MeshError(
            "MESH-U130", f'context file "{path}" can\'t be read', detail=f"{error}."
        ) from error
