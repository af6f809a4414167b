"""``mesh install``: files for other programs, and machines with systemd that run a role."""

from __future__ import annotations

import grp
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
import yaml

from mesh.cli.output import counted, show_table
from mesh.errors import MeshError
from mesh.files import shipped
from mesh.files.private_files import write_private
from mesh.model.nats_roles import NatsRole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mesh.model.values import JsonObject


_PANEL = "Parts of a cluster"
#: Directories that units with ``ProtectHome`` do not see.
_HIDDEN = ("/home", "/root", "/run/user")

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


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("install", rich_help_panel=_PANEL)(install)


def install(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[PART|DIR]",
            help="A part; or with --role, files of 'mesh nats-config' for this machine.",
        ),
    ] = None,
    write: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the part's files into it.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="With --write: replace files that differ.")
    ] = False,
    role: Annotated[
        MachineRole | None, typer.Option(help="What the machine runs; repeat the command.")
    ] = None,
    server: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the NATS server; with --role nats.")
    ] = None,
    program: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Path of mesh, or of nats-server, on the machine."),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name or address of the API, for its certificate."),
    ] = None,
    root: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory of the machine's files.")
    ] = Path("/"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing.")] = False,
) -> None:
    """List and write files for other programs, or prepare a machine with systemd.

    Without arguments the parts are listed: manual pages, dashboards, alert rules, manifests. With
    `--role` the unit, the settings and the keys of a role are written.

    A second call writes what has changed. It keeps files that are yours: those of a part that
    differ, the settings of a role, and the API's certificate.

    Example: `mesh install grafana --write dashboards`, `mesh install /root/nats --role worker`
    """
    if role is not None:
        if what is None:
            raise typer.BadParameter("--role needs the folder of 'mesh nats-config'")
        _prepare(Path(what), role, server, program, tuple(host or ()), root, dry_run=dry_run)
        return
    if what is None:
        rows = ((one.name, one.about, len(texts_of(one))) for one in shipped.PARTS)
        show_table(("part", "content", "files"), rows)
        typer.echo("mesh install PART lists the files of one, with --write DIR writes them.")
        return
    part = next((one for one in shipped.PARTS if one.name == what), None)
    if part is None:
        names = ", ".join(one.name for one in shipped.PARTS)
        raise typer.BadParameter(f'"{what}" is none of {names}; a folder needs --role')
    files = texts_of(part)
    for name, text in files.items():
        if write is None:
            typer.echo(name)
        else:
            file = MachineFile(Path("/", name), text, is_protected=not force)
            why = "which differs; --force replaces it"
            typer.echo(_placed(file, write, _done(dry_run), dry_run=dry_run, why=why))
    if write is None:
        typer.echo(f"{counted(len(files), 'file')}; --write DIR writes them")


def texts_of(part: shipped.ShippedFiles) -> dict[str, str]:
    """Texts of a part's files by their paths below its directory.

    Raises:
        MeshError: MESH-U151 if the installation does not have them.
    """
    if part.name == "man":
        from mesh.cli.manual import manual

        return manual()
    return {name: path.read_text("utf-8") for name, path in shipped.paths_of(part).items()}


def _done(dry_run: bool) -> str:
    return "would write" if dry_run else "wrote"


def _prepare(
    folder: Path,
    role: MachineRole,
    server: str | None,
    program: Path | None,
    hosts: tuple[str, ...],
    root: Path,
    *,
    dry_run: bool,
) -> None:
    """Write the files of a role, and name the commands that follow."""
    path = str(program or _program(role))
    used = (
        [path] if program or role is MachineRole.NATS else [path, os.path.realpath(sys.executable)]
    )
    if hidden := [one for one in used if one.startswith(_HIDDEN)]:
        raise MeshError(
            "MESH-U181",
            f'units do not see "{hidden[0]}"',
            detail="They run without access to the homes of users.",
            hint="Install into /opt/mesh: python3 -m venv /opt/mesh.",
        )
    files = files_of(role, _unit(role), _config_texts(folder, role, server), path)
    said = _done(dry_run)
    for file in files:
        typer.echo(_placed(file, root, said, dry_run=dry_run))
        if file.path.parts[1:3] == ("etc", "sysusers.d") and not dry_run:
            _make_users(root)
    if role is MachineRole.MANAGER:
        typer.echo(_certificate(root, hosts, said, dry_run=dry_run))
    typer.echo("next:")
    for command in next_commands(role, root, lambda one: _in(root, one).exists()):
        typer.echo(f"  {command}")


def _in(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _program(role: MachineRole) -> Path:
    if role is MachineRole.NATS:
        from mesh.jetstream.server import find_binary

        return find_binary()
    return Path(sys.executable).with_name("mesh")


def _unit(role: MachineRole) -> str:
    return shipped.path_of(f"conf/systemd/{role.unit}.service").read_text("utf-8")


def _config_texts(folder: Path, role: MachineRole, server: str | None) -> dict[str, str]:
    """Texts of the files of ``mesh nats-config`` for this machine, by name."""
    paths = {f"{role}.yaml": folder / f"{role}.yaml", f"{role}.nk": folder / "keys" / f"{role}.nk"}
    if role in (MachineRole.WORKER, MachineRole.RECEIVER):
        paths[CONNECTOR_KEY] = folder / "keys" / CONNECTOR_KEY
    if role is MachineRole.NATS:
        if server is None:
            raise MeshError("MESH-U180", "--role nats needs --server with the name of the server")
        accounts, server_file = folder / "accounts.conf", folder / f"{server}.conf"
        paths = {"accounts.conf": accounts, "server.conf": server_file}
    try:
        return {name: path.read_text("utf-8") for name, path in paths.items()}
    except OSError as error:
        raise MeshError(
            "MESH-U180",
            f'file "{error.filename}" can\'t be read',
            detail=f"{error.strerror}.",
            hint="mesh nats-config writes it; copy it from there, with its folder.",
        ) from error


def _placed(
    file: MachineFile, root: Path, said: str, *, dry_run: bool, why: str = "which is yours"
) -> str:
    """Write a file if it has another text; what was done, in one line."""
    target = _in(root, file.path)
    try:
        existing = target.read_bytes() if target.exists() else None
        if existing == file.text.encode():
            return f"unchanged {target}"
        if existing is not None and file.is_protected:
            return f"kept {target}, {why}"
        if not dry_run:
            _make_folders(target.parent)
            write_private(target, file.text)
            if file.is_of_nats:
                os.chown(target, 0, _group(root, NATS_GROUP))
            target.chmod(file.mode)
    except OSError as error:
        raise MeshError(
            "MESH-U182", f'file "{target}" can\'t be written', detail=f"{error.strerror}."
        ) from error
    return f"{said} {target}"


def _make_folders(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if folder.name == "keys":
        folder.chmod(0o700)


def _make_users(root: Path) -> None:
    """The system user of the NATS server, by systemd's own program."""
    program = shutil.which("systemd-sysusers")
    if program is None:
        raise MeshError("MESH-U182", "systemd-sysusers is not installed", hint="Install systemd.")
    _make_folders(_in(root, Path("/etc")))
    command = [program, f"--root={root.absolute()}", "nats.conf"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if said.returncode:
        raise MeshError(
            "MESH-U182", "the user of the NATS server can't be made", detail=said.stderr.strip()
        )


def _group(root: Path, name: str) -> int:
    if root == Path("/"):
        return grp.getgrnam(name).gr_gid
    lines = _in(root, Path("/etc/group")).read_text("utf-8").splitlines()
    return next(int(line.split(":")[2]) for line in lines if line.startswith(f"{name}:"))


def _certificate(root: Path, hosts: Iterable[str], said: str, *, dry_run: bool) -> str:
    """A certificate of the API that is its own authority, unless there is one."""
    import socket

    from mesh.clock import SystemClock
    from mesh.http.certificate import self_signed

    certificate, key = (_in(root, CONFIG / one) for one in ("api.crt", "keys/api.key"))
    if certificate.exists() and key.exists():
        return f"kept {certificate} and {key}"
    if not dry_run:
        _make_folders(key.parent)
        names = dict.fromkeys((socket.gethostname(), *hosts, "localhost", "127.0.0.1", "::1"))
        files = self_signed(key.parent / "made", SystemClock().wall_ms(), tuple(names))
        for source, target in zip(files, (certificate, key), strict=True):
            source.rename(target)
        files[0].parent.rmdir()
        certificate.chmod(0o644)
    return f"{said} {certificate} and {key}: a certificate of its own, for clients as --ca"
