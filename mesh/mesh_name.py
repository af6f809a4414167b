"""Name of the mesh that this process belongs to: the root of its subjects, streams and buckets.

Several meshes may share one NATS account if each has a name of its own (``mesh.name``).  The names
in NATS are fixed when ``mesh.model.names`` is imported, and a process, with all that it starts,
belongs to one mesh.  So the name is in the environment.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Final

from mesh.errors import MeshError

#: The setting ``mesh.name`` in the environment.
VARIABLE: Final = "MESH_MESH_NAME"
DEFAULT: Final = "mesh"
#: Without ``-``, ``_`` and dots: a stream of an app could have the name of another mesh's.
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,31}\Z")


def of_process() -> str:
    """The name of this process's mesh; MESH-U105 for one that names in NATS can't begin with."""
    return checked(os.environ.get(VARIABLE) or DEFAULT)


def checked(name: str) -> str:
    """``name``, if it is valid; otherwise MESH-U105."""
    if not _NAME.match(name):
        raise MeshError(
            "MESH-U105",
            f'setting mesh.name is "{name}", which no mesh is called',
            hint="A name has up to 32 letters and digits, and begins with a letter.",
        )
    return name


def use(name: str) -> None:
    """Make ``name`` that of this process, and of those that it starts.

    If other names in NATS are fixed already, the program starts again with the same arguments.
    """
    if checked(name) == of_process():
        return
    os.environ[VARIABLE] = name
    if "mesh.model.names" in sys.modules:
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def use_first(name: str) -> None:
    """Make ``name`` that of this process, unless names in NATS are fixed: MESH-U105.

    A program that only uses a library is not started again.
    """
    if "mesh.model.names" in sys.modules:
        raise MeshError(
            "MESH-U105",
            f'this process belongs to mesh "{of_process()}", not to "{name}"',
            hint=f"Set {VARIABLE}={name} before the program starts.",
        )
    os.environ[VARIABLE] = checked(name)
