"""Memory of a node: what its processes share counts once; limits of control groups."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from mesh.errors import MeshError
from mesh.processes import machine

if TYPE_CHECKING:
    from pathlib import Path

#: A process with a child that shares a large part of its memory.
FORKS = """
import os, sys
block = bytearray(os.urandom(1)) * 200_000_000
child = os.fork()
if not child:
    sys.stdin.read()
    os._exit(0)
print(flush=True)
sys.stdin.read()
os.waitpid(child, 0)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="needs Linux 4.14")
def test_a_page_of_two_processes_counts_once() -> None:
    command = [sys.executable, "-c", FORKS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdin is not None
        started.stdout.readline()
        load = machine.Load().measure(0.0, started.pid)
        own = machine.memory_bytes(psutil.Process())
        assert 200_000_000 < load.memory_bytes - own < 260_000_000
        started.stdin.close()


def test_memory_is_measured_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter((1, 2, 3, 4))
    monkeypatch.setattr(machine, "memory_bytes", lambda process: next(told))
    load, session = machine.Load(), os.getpid()
    reads: list[int | None] = []

    def processes(self: machine.Load, session: int | None) -> list[psutil.Process]:
        reads.append(session)
        return [self._process] if session is None else [self._process, self._process]

    monkeypatch.setattr(machine.Load, "_processes", processes)
    found = [load.measure(at_s).memory_bytes for at_s in (0.0, 9.0, 10.0, 19.0)]
    assert found == [1, 1, 2, 2]
    # Another session is measured at once, with this process: 3 and 4.
    assert load.measure(19.5, session).memory_bytes == 7
    # The table of processes, which may be long, is read as seldom.
    assert reads == [None, None, session]


def test_processor_time_of_a_session_counts_its_children() -> None:
    spin = "import os, sys\nos.fork() or [i * i for i in iter(int, 1)]\nsys.stdin.read()"
    command = [sys.executable, "-c", spin]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as started:
        while not (children := psutil.Process(started.pid).children()):
            pass
        load = machine.Load()
        load.measure(0.0, started.pid)
        # After the measurement, however long that took.
        before_s = sum(children[0].cpu_times()[:2])
        while sum(children[0].cpu_times()[:2]) < before_s + 0.2:
            pass
        try:
            assert load.measure(1.0, started.pid).process_cpu_percent >= 10
        finally:
            os.killpg(started.pid, signal.SIGKILL)


def test_a_process_that_has_ended_has_none() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        process = psutil.Process(started.pid)
        assert machine.memory_bytes(process) > 0
    assert machine.memory_bytes(process) == 0


def test_a_heartbeat_needs_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    load = machine.Load()
    first = load.measure(0.0)

    def full(self: machine.Load, session: int | None) -> list[psutil.Process]:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(machine.Load, "_processes", full)
    assert load.measure(10.0) == first


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


def limits_of(root: Path) -> tuple[int, int] | None:
    memory = machine.limited_memory(16 * GB, root)
    return None if memory is None else (memory.used_bytes, memory.limit_bytes)


def test_a_container_is_the_root_of_its_groups(tmp_path: Path) -> None:
    put_groups(tmp_path, "0::/")
    put_v2(tmp_path / "sys/fs/cgroup", str(2 * GB), 1_500_000_000, 500_000_000)
    assert limits_of(tmp_path) == (GB, 2 * GB)
    assert machine.Memory(GB, 2 * GB).percent == 50.0


def test_the_path_of_the_machine_is_not_in_the_container(tmp_path: Path) -> None:
    put_groups(tmp_path, "9:name=systemd:/", "4:cpu,memory:/docker/0123", "0::/")
    put_v1(tmp_path / "sys/fs/cgroup/memory", 2 * GB, 1_100_000_000, 100_000_000)
    assert limits_of(tmp_path) == (GB, 2 * GB)


def test_of_groups_in_each_other_the_one_that_is_nearest_to_its_limit_counts(
    tmp_path: Path,
) -> None:
    put_groups(tmp_path, "0::/mesh.slice/worker.service")
    top = tmp_path / "sys/fs/cgroup"
    put(top, cgroup__controllers="memory")
    put_v2(top / "mesh.slice", str(4 * GB), 3 * GB)
    put_v2(top / "mesh.slice/worker.service", str(2 * GB), GB)
    assert limits_of(tmp_path) == (3 * GB, 4 * GB)
    put_v2(top / "mesh.slice/worker.service", "max", GB)
    assert limits_of(tmp_path) == (3 * GB, 4 * GB)


@pytest.mark.parametrize("limit", ["max", str(16 * GB), str(2**63 - 4096), "0", "", "many"])
def test_a_limit_that_does_not_bind_is_none(tmp_path: Path, limit: str) -> None:
    put_groups(tmp_path, "0::/")
    put_v2(tmp_path / "sys/fs/cgroup", limit, GB)
    assert limits_of(tmp_path) is None


def test_a_group_outside_of_the_namespace_and_a_system_without_groups_have_none(
    tmp_path: Path,
) -> None:
    assert limits_of(tmp_path) is None
    put_groups(tmp_path, "0::/../other")
    put_v2(tmp_path / "sys/fs/other", str(GB), GB)
    assert limits_of(tmp_path) is None


def test_a_node_reports_the_limit_and_without_one_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limited = machine.Memory(GB, 2 * GB)
    monkeypatch.setattr(machine, "limited_memory", lambda machine_bytes: limited)
    load = machine.Load().measure(0.0)
    assert (load.memory_percent, load.memory_limit_bytes) == (50.0, 2 * GB)
    monkeypatch.setattr(machine, "limited_memory", lambda machine_bytes: None)
    load = machine.Load().measure(0.0)
    assert load.memory_limit_bytes == psutil.virtual_memory().total
    assert 0 < load.memory_percent <= 100


@pytest.mark.parametrize("name", ["w1", "host.example.com", "a_b-c", "host-1.example.com-17"])
def test_a_name_may_be_that_of_a_host(name: str) -> None:
    assert machine.node_name(name) == name


@pytest.mark.parametrize("name", ["a b", "a/b", ".", "..", "a..b", "a.", "*", "w>", "é", "x" * 101])
def test_a_name_that_can_not_be_a_key_is_refused(name: str) -> None:
    with pytest.raises(MeshError, match="C111"):
        machine.node_name(name)
