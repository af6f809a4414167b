"""Network namespaces for three servers, so that one can lose its network; needs root and iproute2.

Nothing of it is reachable from, or routed to, the machine's own network: servers and the run
itself are in namespaces that only a bridge in another one joins.  Addresses are of the range for
benchmarks (RFC 2544).
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

_NETWORK: Final = 0x4000_0000
_HOSTS: Final = {"n1": 11, "n2": 12, "n3": 13, "run": 100}


def why_not() -> str:
    """The reason why there can't be any; empty if there can."""
    if os.geteuid() != 0:
        return "needs root for network namespaces"
    if shutil.which("ip") is None:
        return "needs ip (iproute2) for network namespaces"
    name = f"mesh-probe-{os.getpid()}"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if done.returncode:
        return f"network namespaces can't be made: {done.stderr.decode().strip()}"
    _ip("netns", "del", name)
    return ""


class Namespaces:
    """A namespace for each server and one for the run, joined by a bridge; use it as a context.

    The thread that enters it, and processes that it starts from then on, are in the namespace of
    the run.
    """

    def __init__(self) -> None:
        self._prefix = f"mesh{os.getpid()}"
        self._home: int | None = None

    def __enter__(self) -> Namespaces:
        hub = f"{self._prefix}-hub"
        try:
            _ip("netns", "add", hub)
            _ip("-n", hub, "link", "add", "br0", "type", "bridge")
            _ip("-n", hub, "link", "set", "br0", "up")
            for name in _HOSTS:
                self._join(hub, name)
            self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
            _enter(Path("/run/netns") / f"{self._prefix}-run")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._home is not None:
            _set(self._home)
            os.close(self._home)
            self._home = None
        for name in (*_HOSTS, "hub"):
            subprocess.run(
                ["ip", "netns", "del", f"{self._prefix}-{name}"], capture_output=True, check=False
            )

    def address(self, name: str) -> str:
        """The address of a server."""
        return f"198.18.0.{_HOSTS[name]}"

    def within(self, name: str) -> list[str]:
        """Prefix of a command that has to run in a server's namespace."""
        return ["ip", "netns", "exec", f"{self._prefix}-{name}"]

    def cut(self, name: str) -> None:
        """Disconnect a server's network."""
        _ip("-n", f"{self._prefix}-hub", "link", "set", f"to-{name}", "down")

    def heal(self, name: str) -> None:
        """Give it back."""
        _ip("-n", f"{self._prefix}-hub", "link", "set", f"to-{name}", "up")

    def _join(self, hub: str, name: str) -> None:
        own = f"{self._prefix}-{name}"
        _ip("netns", "add", own)
        _ip("-n", own, "link", "set", "lo", "up")
        peer = ("peer", "name", "eth0", "netns", own)
        _ip("-n", hub, "link", "add", f"to-{name}", "type", "veth", *peer)
        _ip("-n", hub, "link", "set", f"to-{name}", "master", "br0")
        _ip("-n", hub, "link", "set", f"to-{name}", "up")
        _ip("-n", own, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
        _ip("-n", own, "link", "set", "eth0", "up")


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def _enter(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _set(descriptor)
    finally:
        os.close(descriptor)


def _set(descriptor: int) -> None:
    """Move this thread into a namespace (``os.setns`` needs Python 3.12)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _NETWORK):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
