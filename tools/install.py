"""``python -m tools.install [--all]``: locked packages and mesh, into this Python's environment.

Without ``--all`` those that run a mesh and the demo; with it those of tests and tools as well.
What is there already stays.  uv, itself a locked package, installs several times as fast as pip,
which does it where uv fails or ``MESH_INSTALLER=pip`` is set.  Runs on the standard library alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tools import image_locks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LOCK: Final = Path("requirements.lock")
#: Of a machine that has neither Java nor a NATS server, and the demo's data.
_EXTRAS: Final = ("demo", "java", "server")
#: What builds mesh itself.
_BUILD: Final = "hatchling"
#: PySpark is published as a source archive.  The wheel made of it is unpacked at once, so that
#: compressing it would take fifteen seconds for nothing.
_STORED: Final = "pyspark:--build-option=--compression=stored"


def running(lock: str, project: Mapping[str, Any]) -> str:
    """The part of the lock file that a mesh and the demo need."""
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(one for extra in _EXTRAS for one in extras[extra])]
    return image_locks.part(lock, {_BUILD, *map(image_locks.name_of, wanted)})


def compiling(lock: str, project: Mapping[str, Any]) -> str:
    """The part of the lock file that native loops are compiled with: all that mesh needs but Spark.

    Spark takes longer to install than the rest together.
    """
    wanted = {image_locks.name_of(one) for one in project["dependencies"]} - {"pyspark"}
    return image_locks.part(lock, {_BUILD, *wanted})


def index_of(listed: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that show uv the package index and the certificates of pip's configuration.

    Args:
        listed: what ``pip config list`` prints.
        environment: variables that are set already, which win.
    """
    said = dict(re.findall(r"^[\w:]+\.([\w-]+)='(.*)'$", listed, re.MULTILINE))
    names = {"UV_DEFAULT_INDEX": "index-url", "SSL_CERT_FILE": "cert"}
    return {
        variable: said[name]
        for variable, name in names.items()
        if name in said and variable not in environment
    }


def _pip(*arguments: str | Path, output: bool = False) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pip", *arguments],
        check=False,
        text=True,
        stdout=subprocess.PIPE if output else None,
    )


def _with_uv(parts: Sequence[Path], directory: Path) -> bool:
    """Whether uv has installed the packages of these lock files, and mesh."""
    uv = directory / "uv.lock"
    uv.write_text(image_locks.part(_LOCK.read_text("utf-8"), {"uv"}), "utf-8")
    if _pip("install", "--quiet", "--require-hashes", "-r", uv).returncode:
        return False
    listed = _pip("config", "list", output=True).stdout
    environment = os.environ | index_of(listed, os.environ)
    install = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
    # A terminal sees how far it is, a log nothing of it.
    shown = [] if sys.stdout.isatty() else ["--quiet"]
    locked = [*install, *shown, "--require-hashes", "--config-settings-package", _STORED]
    return _installed([[*locked, "-r", part] for part in parts], [*install, "--quiet"], environment)


def _with_pip(parts: Sequence[Path]) -> bool:
    """Whether pip has installed the packages of these lock files, and mesh."""
    # Twice: older ones warn that PySpark builds as it does.
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--quiet"]
    # As constraints too: before 23.3, pip takes the newest version of a package that another one
    # requires with an extra.
    commands: list[list[str | Path]] = [
        [*install, "--require-hashes", "-r", part, "-c", part] for part in parts
    ]
    return _installed(commands, install, os.environ)


def _installed(
    commands: Sequence[Sequence[str | Path]], install: Sequence[str], environment: Mapping[str, str]
) -> bool:
    """Whether these commands, and one for mesh after the first, have ended well.

    Native loops are compiled from then on where more commands follow: these wait for the network
    and the disk, and the first demo for the loops.
    """
    mesh = [*install, "--no-deps", "--no-build-isolation", "-e", "."]
    first, *others = commands
    for command in (first, mesh):
        if subprocess.run(command, env=environment, check=False).returncode:
            return False
    if others:
        # It continues after this program; a session that needs the loops waits for it.
        subprocess.Popen(
            [sys.executable, "-m", "mesh.operators.precompile"],
            # The demo waits for the usual ones only.
            env={**os.environ, "MESH_USUAL_LOOPS_SUFFICE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    return not any(
        subprocess.run(command, env=environment, check=False).returncode for command in others
    )


def main() -> int:
    """Install; returns the exit code."""
    started_s = time.monotonic()
    text = _LOCK.read_text("utf-8")
    texts = [text]
    if "--all" not in sys.argv[1:]:
        project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
        texts = [compiling(text, project), running(text, project)]
    count = len(image_locks.read(texts[-1]))
    where = Path(sys.prefix).name
    sys.stdout.write(f"Installing {count} packages into {where}, most of it Spark ...\n")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory() as made:
        parts = [Path(made) / f"{number}.lock" for number in range(len(texts))]
        for part, content in zip(parts, texts, strict=True):
            part.write_text(content, "utf-8")
        is_done = os.environ.get("MESH_INSTALLER") != "pip" and _with_uv(parts, Path(made))
        if not is_done and not _with_pip(parts):
            return 1
    sys.stdout.write(f"Installed after {time.monotonic() - started_s:.0f} s.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
