"""``mesh doctor``: what a machine lacks to run a mesh, and the remedies."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from mesh.cli.options import OutputOption, takes_cluster_and_nats
from mesh.cli.output import Output, counted, show_rows
from mesh.clock import SystemClock
from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mesh.cli.options import CommandClient
    from mesh.client import ClientContext

#: Free space below which a worker's states or a server's store soon don't fit.
_DISK_BYTES: Final = 2 * 10**9
#: A worker with its Spark session; docs/operations.md.
_MEMORY_BYTES: Final = 10**9
#: Each connection and each stream of a server takes some.
_FILES: Final = 4096
#: Beyond it windows by event time and certificates go wrong.
_CLOCK_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """The result of one check."""

    what: str
    #: Whether a mesh runs with it as it is.
    is_well: bool
    found: str
    #: The remedy; empty if nothing is to be done.
    remedy: str = ""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="A cluster on this machine")(doctor)


@takes_cluster_and_nats
def doctor(at: ClientContext, output: OutputOption = Output.TEXT) -> None:
    """Check what a mesh needs on this machine, and the cluster if one is named.

    Exit code 1 if something is missing.

    Example: `mesh doctor`
    """
    findings = [*of_machine(), *of_cluster(at)]
    show_rows(
        output,
        [asdict(one) for one in findings],
        ("", "check", "found", "remedy"),
        [("ok" if f.is_well else "!", f.what, f.found, f.remedy) for f in findings],
    )
    if not all(one.is_well for one in findings):
        raise typer.Exit(1)


def of_machine() -> Iterator[DoctorFinding]:
    """The checks of this machine, in the order in which a start needs them."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield DoctorFinding("Python", True, f"{version}, {sys.executable}")
    yield _finding_of("Java", _java)
    yield _finding_of("NATS server", _server)
    yield _loops()
    yield _archive()
    yield at_least("disk", shutil.disk_usage(Path.cwd()).free, _DISK_BYTES, "here")
    yield at_least("memory", _available_bytes(), _MEMORY_BYTES, "for one worker")
    yield _open_files()
    yield _extras()


def of_cluster(context: ClientContext) -> Iterator[DoctorFinding]:
    """The manager and the NATS server of a context, if it names them."""
    if context.server:
        from mesh.cli.options import CommandClient

        with CommandClient(context) as client:
            manager = _finding_of("manager", lambda: _manager(client))
            yield manager
            if manager.is_well:
                yield clock(SystemClock().wall_ms() / 1000 - client.server_time_s())
    if context.nats:
        yield _finding_of("NATS", lambda: asyncio.run(_nats(context)))


def at_least(what: str, free: int, needed: int, where: str) -> DoctorFinding:
    """Whether there is enough of something that is counted in bytes."""
    is_well = free >= needed
    remedy = "" if is_well else f"Make room: {needed / 1e9:.0f} GB are needed {where}."
    return DoctorFinding(what, is_well, f"{free / 1e9:.1f} GB free {where}", remedy)


def clock(ahead_s: float) -> DoctorFinding:
    """Whether this machine's clock is that of the manager's machine, to a second or so."""
    is_well = abs(ahead_s) <= _CLOCK_S
    text = f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the manager's"
    if is_well:
        return DoctorFinding("clock", True, "as the manager's")
    return DoctorFinding("clock", False, text, "Have NTP set both clocks.")


def _finding_of(what: str, ask: Callable[[], str]) -> DoctorFinding:
    """The result of a call, or its error with the remedy that this names."""
    try:
        return DoctorFinding(what, True, ask())
    except MeshError as error:
        return DoctorFinding(what, False, error.message, error.hint or error.detail or "")


def _java() -> str:
    from mesh.processes import java

    home = java.java_home()
    info = java.inspect(home / "bin" / "java")
    return f"{info.version if info else '?'}, {home}"


def _server() -> str:
    from mesh.jetstream import server

    path = server.find_binary()
    shown = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return f"{shown.stdout.strip().rpartition(' ')[2]}, {path}"


def _loops() -> DoctorFinding:
    from mesh.operators import loop_cache

    if loop_cache.is_compiled():
        return DoctorFinding("native loops", True, f"compiled, {loop_cache.CACHE}")
    remedy = f"The first worker compiles them, or: {_prepare()}"
    return DoctorFinding("native loops", True, "not compiled", remedy)


def _archive() -> DoctorFinding:
    try:
        from mesh.spark import class_archive
    except ImportError:
        return DoctorFinding("Spark", False, "not installed", "pip install 'nats-event-mesh'")
    path = class_archive.default_path()
    if path.exists():
        return DoctorFinding("Spark's classes", True, f"archived, {path}")
    remedy = f"Sessions start in half the time after: {_prepare()}"
    return DoctorFinding("Spark's classes", True, "not archived", remedy)


def _prepare() -> str:
    return f"{sys.executable} -m mesh.worker.prepare"


def _available_bytes() -> int:
    import psutil

    return int(psutil.virtual_memory().available)


def _open_files() -> DoctorFinding:
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    is_well = most == resource.RLIM_INFINITY or most >= _FILES
    remedy = "" if is_well else f"ulimit -n {_FILES}, for servers and workers"
    return DoctorFinding("open files", is_well, f"{most} at most", remedy)


def _extras() -> DoctorFinding:
    """The extras of connectors whose libraries are absent, which is no fault."""
    absent = sorted(missing_extras(metadata.requires("nats-event-mesh") or (), _is_installed))
    if not absent:
        return DoctorFinding("connectors", True, "all libraries are installed")
    remedy = f"If an app needs them: pip install 'nats-event-mesh[{','.join(absent)}]'"
    return DoctorFinding("connectors", True, f"without {', '.join(absent)}", remedy)


def missing_extras(requirements: Iterable[str], is_installed: Callable[[str], bool]) -> set[str]:
    """The extras that need a package that is not installed.

    Args:
        requirements: as in a package's metadata: ``aiomqtt>=2.4; extra == 'mqtt'``.
        is_installed: says so of the name of a package.
    """
    parsed = (re.match(r"([\w.-]+).*\bextra == ['\"]([\w-]+)", one) for one in requirements)
    return {one[2] for one in parsed if one and not is_installed(one[1])}


def _is_installed(package: str) -> bool:
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _manager(client: CommandClient) -> str:
    nodes = client.nodes()
    ready = sum(node["role"] == "worker" and node["ready"] for node in nodes)
    return f"{client.server}, {counted(ready, 'worker')} ready"


async def _nats(context: ClientContext) -> str:
    from mesh.client import wire

    async with wire.connected(context) as client:
        return f"{client.connected_server_version}, {context.nats}"
