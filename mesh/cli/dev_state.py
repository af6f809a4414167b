"""Ports and passwords of ``mesh dev``, kept from the first start of a directory on.

They are in a file that its owner alone may read.  Without it the next start makes others.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

import orjson

from mesh.files.private_files import write_private

if TYPE_CHECKING:
    from pathlib import Path

#: Ports of a directory's first start if they are free: those of NATS and of managers elsewhere.
NATS_PORT: Final = 4222
API_PORT: Final = 9543
_FILE: Final = "kept.json"


@dataclass
class DevState:
    """Ports and passwords of a directory; 0 and empty before the first start."""

    nats_port: int = 0
    api_port: int = 0
    #: By the name of the user, of NATS and of the API.
    passwords: dict[str, str] = field(default_factory=dict, repr=False)

    def password(self, name: str, size: int = 24) -> str:
        """The password of a user, made at the first call."""
        # Roles are texts of a type of their own, which JSON has not.
        return self.passwords.setdefault(str(name), secrets.token_urlsafe(size))

    def write(self, directory: Path) -> None:
        """Keep them."""
        write_private(directory / _FILE, orjson.dumps(asdict(self)).decode() + "\n")


def read(directory: Path) -> DevState:
    """The values that a directory has kept; none if there is no such file, or another one."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        state = DevState(**orjson.loads((directory / _FILE).read_bytes()))
        if all(isinstance(one, int) for one in (state.nats_port, state.api_port)):
            return state
    return DevState()


def is_free(port: int) -> bool:
    """Whether a server can listen on a port of this machine now."""
    with socket.socket() as probe, contextlib.suppress(OSError):
        # As servers do: connections of an earlier one, which end slowly, are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False
