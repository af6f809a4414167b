"""Machines with systemd, as containers of Debian: what a page says about a machine holds in them.

They are installed by the commands of docs/machines.md from the wheel of this checkout, so they have
neither the checkout nor its environment.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.paths import ROOT

#: Addresses of the page's hosts.
SUBNET: Final = "198.18.0.0/24"
ADDRESSES: Final = ("198.18.0.11", "198.18.0.12", "198.18.0.13")
#: Longest time of one block of commands, seconds: Spark sessions start on a busy machine.
BLOCK_S: Final = 900.0
_BUILD_S: Final = 1500.0
_IMAGE: Final = "mesh-test-machine"
_WORK: Final = "/root/work"
#: The machine's own part of the commands: a fresh Debian with systemd.
_DOCKERFILE: Final = """FROM {base}
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends systemd systemd-sysv dbus
COPY wheels /root/wheels
ENV PIP_FIND_LINKS=/root/wheels
{commands}
STOPSIGNAL SIGRTMIN+3
# Credentials of units are mounts, which must reach the units' own namespaces.
CMD ["sh", "-c", "mount --make-rshared / && exec /sbin/init"]
"""


@dataclass
class Machine:
    """A machine; ``home / "work"`` here is the directory in which its commands run."""

    name: str
    container: str
    home: Path

    def run(self, commands: str) -> str:
        """Run commands as root; what they wrote.

        Raises:
            AssertionError: one of them failed.
        """
        shell = ["bash", "-euo", "pipefail", "-c", f"PATH=/opt/mesh/bin:$PATH\n{commands}"]
        said = _docker("exec", "-w", _WORK, self.container, *shell, limit_s=BLOCK_S)
        if said.returncode:
            log = _docker("exec", self.container, "journalctl", "-n", "40", "--no-pager").stdout
            raise AssertionError(f"{self.name}: {said.stdout}{said.stderr}{log}")
        return said.stdout


class Machines:
    """Up to three machines at 198.18.0.11 to .13; use it as a context."""

    def __init__(self, directory: Path, names: tuple[str, ...]) -> None:
        self._directory = directory
        self._addresses = dict(zip(names, ADDRESSES, strict=False))
        self._network = f"meshtest{os.getpid()}"
        self.hosts: dict[str, Machine] = {}

    def __enter__(self) -> Machines:
        _done("network", "create", "--subnet", SUBNET, self._network)
        try:
            for name, address in self._addresses.items():
                self.hosts[name] = self._made(name, address)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            _docker("rm", "-f", "-v", host.container)
        _docker("network", "rm", self._network)

    def die(self, name: str) -> None:
        """A machine loses its network and its processes: nobody hears of its end."""
        _done("network", "disconnect", "-f", self._network, self.hosts[name].container)
        _done("kill", self.hosts[name].container)

    def boot(self, name: str) -> None:
        """It is switched on again."""
        container, address = self.hosts[name].container, self._addresses[name]
        _done("network", "connect", "--ip", address, self._network, container)
        _done("start", container)
        _wait_until_up(self.hosts[name])

    def _made(self, name: str, address: str) -> Machine:
        home = self._directory / name
        (home / "work").mkdir(parents=True)
        container = f"{self._network}-{name}"
        # systemd needs control groups, and mounts for what its units may not see.
        rights = ("--cap-add=SYS_ADMIN", "--security-opt=seccomp=unconfined")
        mounts = ("-v=/sys/fs/cgroup:/sys/fs/cgroup:rw", f"-v={home / 'work'}:{_WORK}")
        volatile = ("--tmpfs=/run", "--tmpfs=/run/lock", "--env=container=docker")
        place = (f"--hostname={name}", f"--network={self._network}", f"--ip={address}")
        _done("run", "-d", f"--name={container}", *place, *rights, *mounts, *volatile, _IMAGE)
        machine = Machine(name, container, home)
        _wait_until_up(machine)
        return machine


def base_image() -> str:
    """Debian with Python, of which images are made."""
    return os.environ.get("MESH_IMAGE_BASE", "python:3.12-slim-bookworm")


def build(directory: Path, more: str = "") -> str:
    """Build the machines' image by docs/machines.md; the reason why not, empty if it is built.

    Args:
        directory: an empty one, for the wheel.
        more: further commands of the image.
    """
    base = base_image()
    if shutil.which("docker") is None or _docker("info").returncode:
        return "there is no Docker engine"
    if _docker("image", "inspect", base).returncode:
        return f"base {base} is not there; MESH_IMAGE_BASE names it"
    page = (ROOT / "docs" / "machines.md").read_text("utf-8")
    shown = re.search(r"On every machine, as root:\n\n((?:    .*\n)+)", page)
    assert shown is not None
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "-w", str(directory / "wheels"), str(ROOT)], check=True, timeout=200)
    commands = [*textwrap.dedent(shown[1]).splitlines(), *more.splitlines()]
    lines = "\n".join(f"RUN {one}" for one in commands)
    lines = lines.replace("apt-get install", "apt-get install -y -qq")
    (directory / "Dockerfile").write_text(_DOCKERFILE.format(base=base, commands=lines))
    _done("build", "--network=host", "-t", _IMAGE, str(directory), limit_s=_BUILD_S)
    return ""


def _wait_until_up(machine: Machine) -> None:
    """Wait until systemd answers and has started what is enabled."""
    machine.run("until [ -S /run/systemd/private ]\ndo sleep 0.2; done")
    # It also ends, and says so, when a unit of Debian's has failed.
    machine.run("systemctl is-system-running --wait || true")


def _done(*arguments: str, limit_s: float = 120.0) -> None:
    said = _docker(*arguments, limit_s=limit_s)
    assert said.returncode == 0, said.stdout[-2000:] + said.stderr[-2000:]


def _docker(*arguments: str, limit_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    command = ["docker", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
