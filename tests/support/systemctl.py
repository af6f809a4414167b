"""A stand-in for systemd's ``systemctl`` and ``journalctl`` in a test's namespace.

It starts what a unit says, with its variables, directories and credentials, and returns when the
process has notified readiness.  It restricts nothing, and starts nothing again later.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

UNITS = Path("/etc/systemd/system")
RUN = Path("/run/units")
LIMIT_S = 400.0


def values(text: str, name: str) -> list[str]:
    """The values of an assignment, which may be repeated."""
    return re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)


def environment(unit: str, text: str) -> dict[str, str]:
    """The variables of a unit's process, with its directories made."""
    found = dict(os.environ)
    credentials = Path("/run/credentials") / unit
    for one in values(text, "LoadCredential"):
        name, _, source = one.partition(":")
        if source:
            credentials.mkdir(parents=True, exist_ok=True)
            (credentials / name).write_bytes(Path(source).read_bytes())
    for kind, home in (("StateDirectory", "/var/lib"), ("CacheDirectory", "/var/cache")):
        for name in values(text, kind):
            Path(home, name).mkdir(parents=True, exist_ok=True)
    places = {"%d": str(credentials), "%S": "/var/lib", "%C": "/var/cache"}
    for line in values(text, "Environment"):
        for pair in line.split():
            name, _, value = pair.partition("=")
            for short, long in places.items():
                value = value.replace(short, long)
            found[name] = value
    # The loops are compiled once for all tests.
    found.pop("NUMBA_CACHE_DIR", None)
    return found | {"CREDENTIALS_DIRECTORY": str(credentials)}


def start(unit: str) -> None:
    """Start a unit and wait until it is ready; begin again if its process ends before."""
    drop_ins = sorted((UNITS / f"{unit}.service.d").glob("*.conf"))
    text = "\n".join(p.read_text() for p in (UNITS / f"{unit}.service", *drop_ins))
    command = shlex.split(values(text, "ExecStart")[0].replace("%H", socket.gethostname()))
    given = environment(unit, text)
    RUN.mkdir(parents=True, exist_ok=True)
    path = RUN / f"{unit}.notify"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.settimeout(0.5)
        is_notified = "notify" in values(text, "Type")
        deadline_s = time.monotonic() + LIMIT_S
        process: subprocess.Popen[bytes] | None = None
        while time.monotonic() < deadline_s:
            if process is None or process.poll() is not None:
                with (RUN / f"{unit}.log").open("ab") as log:
                    process = subprocess.Popen(
                        command, env=given | {"NOTIFY_SOCKET": str(path)}, stdout=log, stderr=log,
                        stdin=subprocess.DEVNULL, start_new_session=True,
                    )  # fmt: skip
                (RUN / f"{unit}.pid").write_text(str(process.pid))
            try:
                said = listener.recv(4096).decode().split("\n")
            except TimeoutError:
                said = []
            if "READY=1" in said or not is_notified:
                return
    log_text = (RUN / f"{unit}.log").read_text()[-2000:]
    sys.exit(f"{unit} is not ready after {LIMIT_S:g} s: {log_text}")


def main(arguments: list[str]) -> None:
    """Perform one command."""
    match arguments:
        case ["daemon-reload"]:
            pass
        case ["-u", unit]:
            sys.stdout.write((RUN / f"{unit}.log").read_text())
        case ["enable", "--now", unit] | ["start", unit]:
            start(unit)
        case ["stop", unit]:
            os.kill(int((RUN / f"{unit}.pid").read_text()), signal.SIGTERM)
        case _:
            sys.exit(f"unknown here: {arguments}")


if __name__ == "__main__":
    main(sys.argv[1:])
