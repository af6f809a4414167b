"""A node's machine: load, memory, and identity of the process.

Memory is that of the control groups of the process, if one has a limit: that of a container, of a
pod or of a unit.  A process of a container that uses more than its group may have is killed,
however much memory the machine has left.
"""

from __future__ import annotations

import logging
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from mesh.errors import MeshError
from mesh.model import names
from mesh.model.cluster import NodeMetrics
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.model.cluster import NodeRecord

log = logging.getLogger(__name__)

#: Interval of looks at memory and at the process table.  The kernel walks all pages of a process to
#: tell its memory, and its children are found by reading the table of all processes.
_TABLE_EVERY_S: Final = 10.0


class Load:
    """Measures a node's processes, each time since the last one.

    Every ten seconds it looks for new processes and measures memory, in which a page that processes
    share counts once.
    """

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._cpu_s: dict[int, float] = {}
        self._measured_s: float | None = None
        self._memory_bytes = 0
        self._table_s = -_TABLE_EVERY_S
        self._session: int | None = None
        self._members: list[psutil.Process] = []
        self._last = NodeMetrics()

    def measure(self, now_s: float, session: int | None = None) -> NodeMetrics:
        """The load since the last measurement; the last one if the system does not say.

        It is a part of heartbeats, which do not end for lack of it, as without a free descriptor.

        Args:
            now_s: a monotonic clock, seconds.
            session: process id of the Spark session, whose children count too; None without one.
        """
        try:
            self._last = self._measured(now_s, session)
        except (OSError, psutil.Error) as error:
            log.debug("load not measured", extra=fields(error=error))
        return self._last

    def _measured(self, now_s: float, session: int | None) -> NodeMetrics:
        if now_s - self._table_s >= _TABLE_EVERY_S or session != self._session:
            self._members = self._processes(session)
            self._memory_bytes = sum(map(memory_bytes, self._members))
            self._table_s, self._session = now_s, session
        cpu_s: dict[int, float] = {}
        for process in self._members:
            with suppress(psutil.Error):
                times = process.cpu_times()
                cpu_s[process.pid] = times.user + times.system
        # Of a process that has ended nothing is known; one that is new counts from now on.
        used_s = sum(spent - self._cpu_s.get(pid, spent) for pid, spent in cpu_s.items())
        passed_s = now_s - self._measured_s if self._measured_s is not None else 0.0
        self._cpu_s, self._measured_s = cpu_s, now_s
        whole = psutil.virtual_memory()
        limited = limited_memory(whole.total)
        return NodeMetrics(
            cpu_percent=psutil.cpu_percent(),
            process_cpu_percent=round(100 * max(0.0, used_s) / passed_s, 1) if passed_s else 0.0,
            memory_bytes=self._memory_bytes,
            memory_percent=whole.percent if limited is None else limited.percent,
            memory_limit_bytes=whole.total if limited is None else limited.limit_bytes,
            load_1m=round(os.getloadavg()[0], 2),
        )

    def _processes(self, session: int | None) -> list[psutil.Process]:
        if session is None:
            return [self._process]
        try:
            root = psutil.Process(session)
            return [self._process, root, *root.children(recursive=True)]
        except psutil.Error:
            return [self._process]


def memory_bytes(process: psutil.Process) -> int:
    """Memory of a process, of shared pages its part; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        with suppress(psutil.Error):
            return int(process.memory_info().rss)
        return 0


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory in use, and its limit."""

    used_bytes: int
    limit_bytes: int

    @property
    def percent(self) -> float:
        """The part that is in use."""
        return round(100 * self.used_bytes / self.limit_bytes, 1)


@dataclass(frozen=True, slots=True)
class _Interface:
    """Names of a version's files, and of its value for pages that the kernel takes back at will."""

    mount: str
    limit: str
    used: str
    cache: str


_V1: Final = _Interface(
    "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
)


_V2: Final = _Interface("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")


def limited_memory(machine_bytes: int, root: Path = Path("/")) -> Memory | None:
    """Memory of the group that is nearest to its limit; None if no group has one.

    Args:
        machine_bytes: memory of the machine; a limit that is not below it is none.
        root: the root of the file system.
    """
    read = [_memory_of(interface, group) for interface, group in _groups(root)]
    limited = [one for one in read if one is not None and 0 < one.limit_bytes < machine_bytes]
    return max(limited, key=lambda one: one.percent, default=None)


def _groups(root: Path) -> Iterator[tuple[_Interface, Path]]:
    """Directories of the process's groups, each with those above it.

    In a container, the path may be that of the machine, of which the container sees its own group
    as the root only: the directory of the mount counts in any case.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            interface = _V2
        elif "memory" in controllers.split(","):
            interface = _V1
        else:
            continue
        mount = root / interface.mount
        group = mount / path.lstrip("/")
        # A path of a group outside of the container's namespace begins with "/..".
        inside = () if ".." in group.parts else (group, *group.parents)
        yield from ((interface, one) for one in {mount, *inside} if one.is_relative_to(mount))


def _memory_of(interface: _Interface, group: Path) -> Memory | None:
    """The memory of a group; None if it has no limit, or is not there."""
    try:
        limit = (group / interface.limit).read_text().strip()
        used_bytes = int((group / interface.used).read_text())
        stat = (group / "memory.stat").read_text()
    except OSError:
        return None
    # Version 2 says "max".
    if not limit.isdecimal():
        return None
    cache = next(
        (line.split()[1] for line in stat.splitlines() if line.startswith(f"{interface.cache} ")),
        "0",
    )
    # As Kubernetes and Docker count it: pages of files that were not used lately are no need.
    return Memory(max(0, used_bytes - int(cache)), int(limit))


def node_name(node_id: str) -> str:
    """The name of a manager or worker: ``node_id``, or the host's name and the process id.

    Raises:
        MeshError: MESH-C111 for a name that can't be part of a key.
    """
    node = node_id or f"{socket.gethostname()}-{os.getpid()}"
    if not names.is_node_name(node):
        raise MeshError(
            "MESH-C111",
            f"{node!r} can't be the name of a manager or worker",
            detail="A name has up to 100 letters, digits and the characters _ - and . inside.",
            hint="Give another one with --id.",
        )
    return node


@cache
def name() -> str:
    """Identifier of this boot of the machine and this process table; empty if unknown.

    Two containers may share a host name, and the same process id is another process in each.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def started(pid: int) -> int:
    """Start time of a process, in the kernel's ticks since the boot; 0 when it has ended."""
    try:
        # After the name, which is in parentheses and may hold anything: proc(5).
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    state, start = words[0], int(words[19])
    return 0 if state in "ZX" else start


def has_ended(record: NodeRecord) -> bool:
    """Whether the process that wrote ``record`` is known to have ended: it was on this machine.

    Its session has ended with it.
    """
    if not record.machine or record.machine != name() or not record.process_started:
        return False
    return started(record.pid) != record.process_started
