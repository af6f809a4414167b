"""Users of the NATS server of ``mesh dev``, and the ports and passwords that it keeps.

The processes of the mesh have nkeys, new at each start.  The commands of this machine's user, a
publisher and a reader have passwords, as a URL with a password serves any client; these are kept.

Ports and passwords of ``mesh dev``, kept from the first start of a directory on.

They are in a file that its owner alone may read.  Without it the next start makes others.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import orjson

from mesh.files.private_files import write_private
from mesh.jetstream.accounts import NatsUser, accounts, new_key
from mesh.model.nats_roles import ClientGrant, NatsRole, StreamGrant, inbox

if TYPE_CHECKING:
    from pathlib import Path


PUBLISHER, READER = "publisher", "reader"

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


@dataclass(frozen=True, slots=True)
class LocalKeys:
    """Keys and passwords of one start."""

    configuration: Path
    #: Paths of the seeds of processes.
    seeds: dict[NatsRole, Path]
    #: Of the others, by name.
    passwords: dict[str, str] = field(repr=False)

    def login(self, role: NatsRole) -> dict[str, str]:
        """The environment of a process of a role."""
        return {
            "MESH_NATS_NKEY_SEED_FILE": str(self.seeds[role]),
            "MESH_NATS_INBOX_PREFIX": inbox(role),
            "MESH_RECEIVER_NKEY_SEED_FILE": str(self.seeds[NatsRole.CONNECTOR]),
        }

    def url(self, name: str, url: str) -> str:
        """The URL of NATS for a user with a password."""
        return url.replace("//", f"//{name}:{quote(self.passwords[name], safe='')}@")


def make(directory: Path, state: DevState) -> LocalKeys:
    """Make keys, and the server's configuration with them and the passwords that are kept.

    They are in files that their owner alone may read: arguments of a process can be read by all
    users of the machine, and any of them could connect otherwise.
    """
    directory.mkdir(exist_ok=True, mode=0o700)
    users: list[NatsUser] = []
    seeds: dict[NatsRole, Path] = {}
    for role in (NatsRole.MANAGER, NatsRole.WORKER, NatsRole.CONNECTOR):
        seed, public = new_key()
        seeds[role] = directory / f"{role}.nk"
        write_private(seeds[role], seed)
        users.append(NatsUser(role, role, (public,)))
    every = (StreamGrant("*", "*"),)
    others: dict[str, NatsRole | ClientGrant] = {
        NatsRole.OPERATOR: NatsRole.OPERATOR,
        PUBLISHER: ClientGrant(publish=every),
        READER: ClientGrant(read=every, query=("*",)),
    }
    passwords: dict[str, str] = {}
    for name, of in others.items():
        passwords[name] = state.password(name)
        users.append(NatsUser(name, of, password=passwords[name]))
    path = directory / "nats.conf"
    write_private(path, accounts(users))
    return LocalKeys(path, seeds, passwords)
