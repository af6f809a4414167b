"""A node's memory is a part of what its container may have, by both interfaces of the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest

from mesh import control_groups, machine

if TYPE_CHECKING:
    from pathlib import Path

GB = 1_000_000_000


def put(path: Path, **files: str) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(f"{text}\n")


def put_v2(path: Path, limit: str, used: int, cache: int = 0) -> None:
    stat = f"anon 1\ninactive_file {cache}"
    put(path, memory__max=limit, memory__current=str(used), memory__stat=stat)


def put_v1(path: Path, limit: int, used: int, cache: int = 0) -> None:
    put(path, memory__stat=f"inactive_file 1\ntotal_inactive_file {cache}")
    put(path, memory__limit_in_bytes=str(limit), memory__usage_in_bytes=str(used))


def put_groups(root: Path, *lines: str) -> None:
    put(root / "proc" / "self", cgroup="\n".join(lines))


def found(root: Path) -> tuple[int, int] | None:
    memory = control_groups.memory(16 * GB, root)
    return None if memory is None else (memory.used_bytes, memory.limit_bytes)


def test_a_container_is_the_root_of_its_groups(tmp_path: Path) -> None:
    put_groups(tmp_path, "0::/")
    put_v2(tmp_path / "sys/fs/cgroup", str(2 * GB), 1_500_000_000, 500_000_000)
    assert found(tmp_path) == (GB, 2 * GB)
    assert control_groups.Memory(GB, 2 * GB).percent == 50.0


def test_the_path_of_the_machine_is_not_in_the_container(tmp_path: Path) -> None:
    put_groups(tmp_path, "9:name=systemd:/", "4:cpu,memory:/docker/0123", "0::/")
    put_v1(tmp_path / "sys/fs/cgroup/memory", 2 * GB, 1_100_000_000, 100_000_000)
    assert found(tmp_path) == (GB, 2 * GB)


def test_of_groups_in_each_other_the_one_that_is_nearest_to_its_limit_counts(
    tmp_path: Path,
) -> None:
    put_groups(tmp_path, "0::/mesh.slice/worker.service")
    top = tmp_path / "sys/fs/cgroup"
    put(top, cgroup__controllers="memory")
    put_v2(top / "mesh.slice", str(4 * GB), 3 * GB)
    put_v2(top / "mesh.slice/worker.service", str(2 * GB), GB)
    assert found(tmp_path) == (3 * GB, 4 * GB)
    put_v2(top / "mesh.slice/worker.service", "max", GB)
    assert found(tmp_path) == (3 * GB, 4 * GB)


@pytest.mark.parametrize("limit", ["max", str(16 * GB), str(2**63 - 4096), "0", "", "many"])
def test_a_limit_that_does_not_bind_is_none(tmp_path: Path, limit: str) -> None:
    put_groups(tmp_path, "0::/")
    put_v2(tmp_path / "sys/fs/cgroup", limit, GB)
    assert found(tmp_path) is None


def test_a_group_outside_of_the_namespace_and_a_system_without_groups_have_none(
    tmp_path: Path,
) -> None:
    assert found(tmp_path) is None
    put_groups(tmp_path, "0::/../other")
    put_v2(tmp_path / "sys/fs/other", str(GB), GB)
    assert found(tmp_path) is None


def test_a_node_reports_the_limit_and_without_one_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limited = control_groups.Memory(GB, 2 * GB)
    monkeypatch.setattr(control_groups, "memory", lambda machine_bytes: limited)
    load = machine.Load().measure(0.0)
    assert (load.memory_percent, load.memory_limit_bytes) == (50.0, 2 * GB)
    monkeypatch.setattr(control_groups, "memory", lambda machine_bytes: None)
    load = machine.Load().measure(0.0)
    assert load.memory_limit_bytes == psutil.virtual_memory().total
    assert 0 < load.memory_percent <= 100
