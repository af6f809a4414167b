"""Prepare an installation: ``python -m mesh.worker.prepare``.

Compiles the operators' native loops, runs a Spark session and its warm-up once, and has the JVM
write an archive of Spark's classes as it exits.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mesh.files import scratch
from mesh.jetstream import server
from mesh.operators import loop_cache, precompile
from mesh.processes import java
from mesh.processes.progress import working
from mesh.settings import NatsSettings, Settings
from mesh.spark import class_archive
from mesh.worker.protocol import SessionConfig, config_line

if TYPE_CHECKING:
    from collections.abc import Callable

#: Timeout of the session, and then of the JVM, which outlives it while it writes; seconds.
_SESSION_S: Final = 300
_JVM_S: Final = 90


def make() -> Path | str:
    """Run a session and its warm-up, and have its JVM write the archive as it exits.

    Returns:
        The archive's path; or the reason why there is none.
    """
    # The archive extends that of Java's own classes, which some installations of Java lack, for
    # one the wheel's.  Creating that one needs a second and a writable installation.
    if not _java("-Xshare:on", "-version") and not (
        _java("-Xshare:dump") and _java("-Xshare:on", "-version")
    ):
        return "this Java has no archive of its own classes and cannot write one"
    path = class_archive.default_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with scratch.directory("prepare") as directory:
        nats = server.start(directory / "nats")
        config = SessionConfig(
            "archive", str(directory / "state"), Settings(nats=NatsSettings(url=nats.url))
        )
        said = directory / "session.log"
        try:
            # A file, as Java outlives the session, and would hold a pipe open.
            with said.open("wb") as log:
                ended = subprocess.run(
                    [sys.executable, "-m", "mesh.worker.session_process"],
                    # No command: the session ends as soon as it is ready.
                    input=config_line(config),
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    env={
                        **os.environ,
                        class_archive.WRITE_VARIABLE: "1",
                    },
                    timeout=_SESSION_S,
                    check=False,
                )
        except subprocess.TimeoutExpired:
            return f"a session was not ready after {_SESSION_S} s; is the machine busy?"
        finally:
            nats.stop()
        written = class_archive.unfinished(path)
        if ended.returncode and not written.exists():
            lines = said.read_text("utf-8", errors="replace").strip().splitlines()
            return f"a session ended with {ended.returncode}: {(lines or ['no message'])[-1]}"
    if not _finished(written, path):
        return f"Java had not written it {_JVM_S} s after the session; is the machine busy?"
    return path


def _java(*arguments: str) -> bool:
    """Whether Java ends well with these arguments."""
    command: list[str | Path] = [java.java_home() / "bin" / "java", "-XX:-UsePerfData", *arguments]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _finished(written: Path, path: Path) -> bool:
    """Wait until the JVM has written the file and it no longer grows, then move it into place."""
    deadline_s = time.monotonic() + _JVM_S
    size = -1
    while time.monotonic() < deadline_s:
        now = written.stat().st_size if written.exists() else -1
        if now > 0 and now == size:
            # Classes that are no secret, for the user of every worker; sessions write for theirs.
            written.chmod(0o444)
            written.replace(path)
            return True
        size = now
        time.sleep(1)
    return False


def main() -> None:
    """Compile the loops while the session starts, which waits for them, and say what was made."""
    were_compiled = loop_cache.is_compiled()
    with ThreadPoolExecutor(1) as beside, working(_prepared_now):
        loops = beside.submit(_timed, precompile.compile_once)
        archive = make()
        compiled_s = loops.result()
    compiled = "compiled already" if were_compiled else f"compiled in {compiled_s:.0f} s"
    sys.stdout.write(f"native loops: {compiled}\n")
    outcome = archive if isinstance(archive, Path) else f"not made: {archive}"
    sys.stdout.write(f"class archive: {outcome}\n")


def _prepared_now() -> str:
    text = "Spark's classes are archived"
    if loop_cache.is_compiled():
        return text
    count = sum(1 for _ in loop_cache.CACHE.rglob("*.nbc"))
    return f"native loops are compiled, {count} so far; {text}"


def _timed(work: Callable[[], None]) -> float:
    """Seconds that it takes."""
    started_s = time.monotonic()
    work()
    return time.monotonic() - started_s


if __name__ == "__main__":
    main()
