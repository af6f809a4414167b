"""Files of a machine that runs one role under systemd: what ``mesh install`` writes.

The functions compute files from values; ``mesh/cli/install.py`` reads and writes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml

from mesh.errors import MeshError
from mesh.model.nats_roles import NatsRole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mesh.model.values import JsonObject

#: The directory that the units of ``conf/systemd`` name for the program.
UNIT_PREFIX: Final = "/opt/mesh/bin"
CONFIG: Final = Path("/etc/mesh")
NATS_CONFIG: Final = Path("/etc/nats")
UNITS: Final = Path("/etc/systemd/system")
NATS_GROUP: Final = "nats"
_USERS: Final = 'u nats - "NATS server" /var/lib/nats\n'
#: The key of connectors: of workers and receivers.
CONNECTOR_KEY: Final = f"{NatsRole.CONNECTOR}.nk"
#: Ports of the probes: a worker and a receiver may share a machine.
_PROBE_PORTS: Final = {"worker": 9544, "receiver": 9545}


class MachineRole(StrEnum):
    """A role of a machine; it may have several."""

    MANAGER = "manager"
    WORKER = "worker"
    RECEIVER = "receiver"
    NATS = "nats"

    @property
    def unit(self) -> str:
        """The name of its unit, without suffix."""
        return "nats-server" if self is MachineRole.NATS else f"mesh-{self}"


@dataclass(frozen=True, slots=True)
class MachineFile:
    """A file of the machine."""

    path: Path
    text: str
    mode: int = 0o644
    #: Whether another text of this file is the operator's, and stays.
    is_protected: bool = False
    #: Whether the group of the NATS server may read it.
    is_of_nats: bool = False


def files_of(
    role: MachineRole, unit: str, texts: Mapping[str, str], program: str
) -> tuple[MachineFile, ...]:
    """The files of one role.

    Args:
        role: of the machine.
        unit: text of the role's unit, as in ``conf/systemd``.
        texts: those of the files of ``mesh nats-config`` for this machine, by name: ``NAME.yaml``
            and ``NAME.nk`` of a role, ``connector.nk`` of one with connectors, or ``server.conf``
            and ``accounts.conf``.
        program: absolute path of ``mesh``, or of ``nats-server``.

    Raises:
        MeshError: MESH-U180 if a file is no such file.
    """
    name = "nats-server" if role is MachineRole.NATS else "mesh"
    text = unit.replace(f"{UNIT_PREFIX}/{name}", program)
    files = [MachineFile(UNITS / f"{role.unit}.service", text)]
    if role is MachineRole.NATS:
        return (
            MachineFile(Path("/etc/sysusers.d/nats.conf"), _USERS),
            MachineFile(NATS_CONFIG / "nats.conf", texts["server.conf"], 0o640, is_of_nats=True),
            MachineFile(
                NATS_CONFIG / "accounts.conf", texts["accounts.conf"], 0o640, is_of_nats=True
            ),
            *files,
        )
    nats = _nats_section(texts[f"{role}.yaml"])
    settings = yaml.safe_dump(_settings(role, nats), sort_keys=False)
    head = f"# Settings of the {role} of this machine; conf/mesh.yaml lists all.\n"
    files += [
        MachineFile(CONFIG / f"{role}.yaml", head + settings, is_protected=True),
        *(
            MachineFile(CONFIG / "keys" / name, texts[name], 0o600)
            for name in (f"{role}.nk", CONNECTOR_KEY)
            if name in texts
        ),
    ]
    if nats.get("tls_ca"):
        files.append(MachineFile(UNITS / f"{role.unit}.service.d" / "tls.conf", _TLS))
    return tuple(files)


#: Servers of ``mesh nats-config`` with TLS ask for a certificate, whose key is a credential.
_TLS: Final = """\
# The certificate that the NATS servers ask for.
[Service]
LoadCredential=client.key:/etc/mesh/keys/client.key
Environment=MESH_NATS_TLS_CERT=/etc/mesh/client.crt MESH_NATS_TLS_KEY=%d/client.key
"""


def _nats_section(text: str) -> JsonObject:
    try:
        section = yaml.safe_load(text)["nats"]
        str(section["url"])
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise MeshError(
            "MESH-U180",
            "the settings of the role are no file of mesh nats-config",
            detail=f"{type(error).__name__}: {error}.",
        ) from error
    # The unit names the file, which is a credential.
    return {name: value for name, value in section.items() if name != "nkey_seed_file"}


def _settings(role: MachineRole, nats: JsonObject) -> JsonObject:
    servers = str(nats["url"]).count(",") + 1
    values: JsonObject = {"nats": nats, "channels": {"replicas": 3 if servers >= 3 else 1}}
    if role is MachineRole.MANAGER:
        # The key is a credential as well.
        values["manager"] = {"host": "0.0.0.0", "tls_cert": str(CONFIG / "api.crt")}
    else:
        values["worker"] = {"probe_port": _PROBE_PORTS[role]}
    if role is MachineRole.RECEIVER:
        values["worker"] |= {"spark": False, "takes_queries": False, "takes_receivers": True}
    return values


def next_commands(role: MachineRole, root: Path, has: Callable[[Path], bool]) -> list[str]:
    """The commands that follow, in their order.

    Args:
        role: of the machine.
        root: directory of the machine's files.
        has: whether a path of the machine exists.
    """
    commands = []
    if role in (MachineRole.MANAGER, MachineRole.WORKER, MachineRole.RECEIVER):
        needed = [CONFIG / "keys" / "client.key", CONFIG / "client.crt"]
        if has(UNITS / f"{role.unit}.service.d" / "tls.conf") and not all(map(has, needed)):
            commands.append(
                f"put the client's certificate and key into {' and '.join(map(str, needed))}"
            )
    if root != Path("/"):
        return [*commands, f"systemctl --root={root} enable {role.unit}"]
    return [*commands, "systemctl daemon-reload", f"systemctl enable --now {role.unit}"]
