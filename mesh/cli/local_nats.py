"""Users of the NATS server of ``mesh dev``.

The processes of the mesh have nkeys, new at each start.  The commands of this machine's user, a
publisher and a reader have passwords, as a URL with a password serves any client; these are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

from mesh.files.private_files import write_private
from mesh.jetstream.accounts import NatsUser, accounts, new_key
from mesh.model.nats_roles import ClientGrant, NatsRole, StreamGrant, inbox

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.cli.dev_state import DevState

PUBLISHER, READER = "publisher", "reader"


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
