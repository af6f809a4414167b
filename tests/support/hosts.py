"""Hosts on this machine: each has a network, a name and files of its own, and may die wholly."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.chaos import namespaces
from bench.chaos.namespaces import Namespaces
from mesh.jetstream import server
from tests.support.paths import ROOT

#: Directories of the machine that a host changes, for itself alone.
_OWN: Final = ("etc", "var", "opt")
_SETUP: Final = """
set -e
hostname {name}
mount --make-rprivate /
mkdir -p {home}/over {home}/work
mount -t tmpfs tmpfs {home}/over
for d in {own}; do
  over={home}/over/$d
  mkdir -p $over.up $over.work
  mount -t overlay overlay -o lowerdir=/$d,upperdir=$over.up,workdir=$over.work /$d
done
mount -t tmpfs tmpfs /run
mkdir -p /opt/mesh/bin
cp -P {home}/bin/* /opt/mesh/bin/
echo ready
exec cat
"""
#: Longest time of one block of commands, seconds: Spark sessions start on a busy machine.
BLOCK_S: Final = 600.0


@dataclass
class Host:
    """A host; its namespaces live as long as ``holder``."""

    name: str
    #: Of the network namespace.
    network: str
    home: Path
    holder: subprocess.Popen[str]

    def run(self, commands: str) -> str:
        """Run commands as root of this host, in its own directory; what they wrote.

        Raises:
            AssertionError: one of them failed.
        """
        inside = ["nsenter", "-t", str(self.holder.pid), "--mount", "--net", "--uts"]
        path = f"/opt/mesh/bin:{os.environ['PATH']}"
        said = subprocess.run(
            [*inside, f"--wd={self.home / 'work'}", "bash", "-euo", "pipefail", "-c", commands],
            capture_output=True, text=True, timeout=BLOCK_S, check=False,
            env={"PATH": path, "HOME": str(self.home), "LANG": "C.UTF-8"},
        )  # fmt: skip
        logs = self.home / "over"
        assert said.returncode == 0, f"{self.name} ({logs}): {said.stdout}{said.stderr}"
        return said.stdout

    def processes(self) -> list[int]:
        """Its processes, without the one that holds its namespaces."""
        said = subprocess.run(["ip", "netns", "pids", self.network], capture_output=True, text=True)
        return [pid for pid in map(int, said.stdout.split()) if pid != self.holder.pid]


class Hosts:
    """Up to three hosts at 198.18.0.11 to .13; use it as a context.

    The thread that enters it is in their network.
    """

    def __init__(self, directory: Path, names: tuple[str, ...]) -> None:
        self._directory = directory
        self._network = Namespaces()
        self._nodes = dict(zip(names, ("n1", "n2", "n3"), strict=False))
        self.hosts: dict[str, Host] = {}

    def __enter__(self) -> Hosts:
        self._network.__enter__()
        try:
            for name, node in self._nodes.items():
                self.hosts[name] = self._made(name, node)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            self._end(host)
            assert host.holder.stdin is not None
            host.holder.stdin.close()
            host.holder.wait(20)
            assert host.holder.stdout is not None
            host.holder.stdout.close()
        self._network.__exit__()

    def die(self, name: str) -> None:
        """A host loses its network and its processes: nobody hears of its end."""
        self._network.cut(self._nodes[name])
        self._end(self.hosts[name])

    def boot(self, name: str) -> None:
        """It has its network again; nothing runs."""
        self._network.heal(self._nodes[name])

    def _end(self, host: Host) -> None:
        while pids := host.processes():
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue

    def _made(self, name: str, node: str) -> Host:
        home = self._directory / name
        (home / "bin").mkdir(parents=True)
        python = f"exec env PYTHONPATH={shlex.quote(os.pathsep.join(sys.path))} {sys.executable}"
        stand_in = ROOT / "tests" / "support" / "systemctl.py"
        programs = {"mesh": "-m mesh.cli", "systemctl": str(stand_in), "journalctl": str(stand_in)}
        for program, what in programs.items():
            path = home / "bin" / program
            path.write_text(f'#!/bin/sh\n{python} {what} "$@"\n')
            path.chmod(0o755)
        (home / "bin" / "nats-server").symlink_to(server.find_binary())
        inside = self._network.within(node)
        setup = _SETUP.format(name=name, home=home, own=" ".join(_OWN))
        holder = subprocess.Popen(
            [*inside, "unshare", "--mount", "--uts", "bash", "-c", setup],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n", "no mounts of its own"
        return Host(name, inside[-1], home, holder)


def why_not() -> str:
    """The reason why there can be no hosts; empty if there can."""
    if reason := namespaces.why_not():
        return reason
    for program in ("unshare", "nsenter", "hostname"):
        if shutil.which(program) is None:
            return f"needs {program}"
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/run"]
    said = subprocess.run(probe, capture_output=True, text=True, check=False)
    return f"mounts can't be made: {said.stderr.strip()}" if said.returncode else ""


def blocks(page: str) -> list[tuple[str, str]]:
    """Hosts and commands of a page's blocks, of those that follow ``On `host`..:``."""
    found = []
    pattern = re.compile(r"[Oo]n\s+`(\w+)`[^\n]*(?:\n[^\n]+)*?\n\n((?:    [^\n]*\n|\n(?=    ))+)")
    for match in pattern.finditer(page):
        lines = [line[4:] for line in match[2].splitlines()]
        found.append((match[1], "\n".join(lines)))
    return found
