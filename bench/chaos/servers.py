"""The NATS servers of a run: one, or three that form a cluster, each to be killed or cut off."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import time
import urllib.request
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mesh.jetstream import server
from mesh.jetstream.accounts import MESH
from mesh.processes.bounded_process import die_with_parent
from mesh.settings import NatsSettings
from tests.support.secured import READER, Secured

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence
    from pathlib import Path

    from bench.chaos.namespaces import Namespaces

#: Maximum time of a cluster's elections, seconds.
WHOLE_S: Final = 60.0
#: User of a cluster's system account, and the password; all others give no name.
SYSTEM_USER: Final = "system"
_SYSTEM: Final = f"$SYS {{ users: [{{ user: {SYSTEM_USER}, password: {SYSTEM_USER} }}] }}"


class Servers:
    """Servers n1, n2, .. with stores of their own; ports and files outlive a restart."""

    def __init__(
        self,
        directory: Path,
        count: int,
        namespaces: Namespaces | None = None,
        *,
        is_secured: bool = False,
    ) -> None:
        """Start them, and wait until they are whole.

        Args:
            directory: of their files.
            count: 1 or 3.
            namespaces: their networks, None for that of this process.
            is_secured: whether they have TLS, client certificates and roles.
        """
        self.names = [f"n{number}" for number in range(1, count + 1)]
        self._directory = directory
        self._binary = server.find_binary()
        self._namespaces = namespaces
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = {
            name: (4222, 6222, 8222) if namespaces else tuple(server.free_port() for _ in range(3))
            for name in self.names
        }
        self.secured: Secured | None = None
        if is_secured:
            addresses = {"127.0.0.1", *map(self._host, self.names)}
            self.secured = Secured(
                directory / "secured", self.names, addresses=tuple(addresses), outside=("*",)
            )
        for name in self.names:
            self._write(name)
            self.start(name)
        self.wait_whole()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Addresses for clients, by host and port."""
        return [(self._host(name), self._ports[name][0]) for name in self.names]

    @property
    def url(self) -> str:
        """URL for clients, with all servers."""
        return ",".join(f"nats://{host}:{port}" for host, port in self.addresses)

    def settings(self, user: str, process: str = "", url: str = "") -> NatsSettings:
        """The connection of a user; ``url`` is that of a link, if one is between."""
        if user == SYSTEM_USER:
            plain = self.settings(READER, url=url)
            return replace(plain, user=user, password=user, nkey_seed_file="")
        if self.secured is None:
            return NatsSettings(url or self.url)
        return self.secured.settings(user, url or self.url, process)

    def tls(self, process: str) -> tuple[ssl.SSLContext, ssl.SSLContext] | None:
        """TLS of a process's link; None without."""
        return self.secured.contexts(process) if self.secured is not None else None

    def start(self, name: str) -> None:
        """Start a server that doesn't run; returns at once.

        It ends with the thread that starts it, which so is the main one.
        """
        directory = self._directory / name
        prefix = self._namespaces.within(name) if self._namespaces else []
        with (directory / "nats-server.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*prefix, str(self._binary), "-c", str(directory / "nats.conf")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )

    def kill(self, name: str) -> None:
        """Kill -9 a server."""
        self._end(name, signal.SIGKILL)

    def end(self, name: str) -> None:
        """End a server in order."""
        self._end(name, signal.SIGTERM)

    def save(self, name: str) -> None:
        """Keep what a stopped server has stored, for ``lose``."""
        shutil.rmtree(self._saved(name), ignore_errors=True)
        shutil.copytree(self.store(name), self._saved(name))

    def lose(self, name: str, stream: str = "") -> None:
        """Set a stopped server back to what was saved: one stream, or everything."""
        account = "$G" if len(self.names) == 1 and self.secured is None else MESH
        inside = f"jetstream/{account}/streams/{stream}" if stream else ""
        kept, present = self._saved(name) / inside, self.store(name) / inside
        # The directory itself may be a mount.
        for path in present.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(kept, present, dirs_exist_ok=True)

    def store(self, name: str) -> Path:
        """Directory of a server's JetStream data."""
        return self._directory / name / "jetstream"

    def _saved(self, name: str) -> Path:
        return self._directory / name / "saved"

    def pid(self, name: str) -> int:
        """Process id of a running server."""
        return self._running[name].pid

    def cut(self, name: str) -> None:
        """Disconnect a server's network; needs namespaces."""
        assert self._namespaces is not None
        self._namespaces.cut(name)

    def repair(self) -> None:
        """Start stopped servers, and reconnect those cut off; see also ``wait_whole``."""
        for name in self.names:
            if self._namespaces is not None:
                self._namespaces.heal(name)
            if name not in self._running or self._running[name].poll() is not None:
                self.start(name)

    def stop(self) -> None:
        """End all servers."""
        for name in list(self._running):
            self.end(name)

    def node_of(self, client: str) -> str:
        """The server that a client of this name is connected to."""
        for name in self.names:
            told = self._http(name, "connz") or {}
            if any(one.get("name") == client for one in told.get("connections", ())):
                return name
        raise LookupError(f"no server knows {client}")

    def wait_whole(self) -> None:
        """Return when every server reports that it is healthy and knows the leader; blocks."""
        deadline_s = time.monotonic() + WHOLE_S
        while unwell := [name for name in self.names if not self._is_well(name)]:
            if time.monotonic() > deadline_s:
                log = (self._directory / unwell[0] / "nats-server.log").read_text()
                raise TimeoutError(
                    f"NATS servers {unwell} are not whole after {WHOLE_S:g} s: {log[-500:]}"
                )
            for name in unwell:
                # One of its ports may have been taken for a moment by a connection's own end.
                if name in self._running and self._running[name].poll() is not None:
                    self.start(name)
            time.sleep(0.05)

    def _is_well(self, name: str) -> bool:
        # Plain /healthz may fail for minutes because of a consumer of a vanished client.
        told = self._http(name, "healthz?js-meta-only=true")
        if told is None or told.get("status") != "ok":
            return False
        if len(self.names) == 1:
            return True
        varz = self._http(name, "jsz")
        return bool(varz and varz.get("meta_cluster", {}).get("leader"))

    def monitored(self, name: str, path: str) -> dict[str, Any]:
        """A page of a server's monitoring, such as ``jsz``."""
        found = self._http(name, path)
        if found is None:
            raise LookupError(f"{name} does not answer /{path}")
        return found

    def _http(self, name: str, path: str) -> dict[str, Any] | None:
        url = f"http://{self._host(name)}:{self._ports[name][2]}/{path}"
        with contextlib.suppress(OSError, ValueError):
            with urllib.request.urlopen(url, timeout=1) as answer:
                found: dict[str, Any] = json.load(answer)
            return found
        return None

    def _end(self, name: str, number: int) -> None:
        process = self._running.pop(name)
        process.send_signal(number)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _host(self, name: str) -> str:
        return self._namespaces.address(name) if self._namespaces else "127.0.0.1"

    def _write(self, name: str) -> None:
        directory = self._directory / name
        directory.mkdir(parents=True, exist_ok=True)
        client, route, http = self._ports[name]
        host = self._host(name)
        lines = [f'http: "{host}:{http}"', f'jetstream {{ store_dir: "{self.store(name)}" }}']
        if self.secured is not None:
            others = {one: (self._host(one), self._ports[one][1]) for one in self.names}
            text = self.secured.text(name, (host, client), others)
            # As below.
            text = text.replace("cluster {", "cluster {\n  no_advertise: true")
            text = text.replace("accounts {", f"accounts {{\n  {_SYSTEM}", 1)
            (directory / "nats.conf").write_text("\n".join([*lines, text]))
            return
        lines += [f"server_name: {name}", f'listen: "{host}:{client}"']
        if len(self.names) > 1:
            routes = ", ".join(_route(self._host(n), self._ports[n]) for n in self.names)
            # Clients must not learn of servers past the links that we cut.
            lines.append(
                f'cluster {{ name: chaos, listen: "{host}:{route}", no_advertise: true, '
                f"routes: [{routes}] }}"
            )
            # Only the system's account may have the cluster's own leader step down.
            lines.append(
                f"accounts {{ {_SYSTEM}, "
                f"{MESH} {{ jetstream: enabled, users: [{{ user: mesh, password: mesh }}] }} }}"
            )
            lines.append("no_auth_user: mesh")
        (directory / "nats.conf").write_text("\n".join(lines) + "\n")


def _route(host: str, ports: Sequence[int]) -> str:
    return f'"nats://{host}:{ports[1]}"'
