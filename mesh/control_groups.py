"""Memory of the control groups of this process: limits of a container, of a pod or of a unit.

A process of a container that uses more than its group may have is killed, however much memory the
machine has left.  Both versions of the kernel's interface are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator


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


def memory(machine_bytes: int, root: Path = Path("/")) -> Memory | None:
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
