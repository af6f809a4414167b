"""Directory of the native loops' compiled code, whose name is a digest of all it depends on.

It is known without Numba, whose import takes 30 MB: a worker asks whether all is compiled.

Numba caches compiled code by function, and checks only the age of that function's own file. A loop
that has a function of another file compiled into it would not be compiled again when that file
changes. So the cache directory is named after the contents of every file with native loops, and of
every file that one of these imports functions or constants from.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import os
import platform
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from mesh.files import scratch

log = logging.getLogger(__name__)

HERE: Final = Path(__file__).parent
#: Directory for compiled code that the user chose; beside the sources otherwise.
DIRECTORY_VARIABLE: Final = "NUMBA_CACHE_DIR"
#: Set where an app waits for the usual loops only, those of time windows and patterns: the first
#: demo of an installation.  The other loops are compiled meanwhile, with what time is left.
USUAL_VARIABLE: Final = "MESH_USUAL_LOOPS_SUFFICE"
_PACKAGE: Final = __name__.rpartition(".")[0]
#: The module of the decorators.
_NATIVE: Final = f"{_PACKAGE}.native"
#: An import from this package: the module, and the names.
_IMPORT: Final = re.compile(
    rf"^ *from ({_PACKAGE}(?:\.\w+)*) import (\([^)]*\)|[^\n]*)", re.MULTILINE
)
_DECORATOR: Final = re.compile(r"^@(\w+)", re.MULTILINE)


def sources() -> list[Path]:
    """Files on whose contents compiled code depends: those with native loops, and their imports.

    A file has native loops if it imports ``native``, or a decorator from this package.
    """
    paths = {HERE / "native.py"}
    for path in HERE.rglob("*.py"):
        text = path.read_text("utf-8")
        imports = _IMPORT.findall(text)
        modules = {module for module, _ in imports}
        names = {name for _, listed in imports for name in re.findall(r"\w+", listed)}
        if _NATIVE in modules or names.intersection(_DECORATOR.findall(text)):
            paths |= {path, *map(_file_of, modules)}
    return sorted(paths)


def _file_of(module: str) -> Path:
    place = HERE.joinpath(*module.removeprefix(_PACKAGE).split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _digest() -> str:
    digest = hashlib.blake2b(importlib.metadata.version("numba").encode(), digest_size=8)
    for path in sources():
        digest.update(path.read_bytes())
    return digest.hexdigest()


def find_cache() -> Path:
    """The directory of this version's compiled code, to which no other user can write.

    Numba unpickles and runs what it finds there.  It is in the directory that the user named,
    beside the sources, in the user's cache, or in a directory of this process.
    """
    name = f"native-{_digest()}"
    for home in (_named, _beside, scratch.user_cache):
        try:
            directory = home()
            # A user who may write to the sources may also write beside them.
            beside = HERE if home is _beside else None
            return scratch.trusted(scratch.trusted(directory, beside=beside) / name, beside=beside)
        except FileNotFoundError:
            continue
        except OSError as error:
            level = logging.WARNING if home is _named else logging.DEBUG
            log.log(level, "compiled code is kept elsewhere: %s", error)
    fallback = scratch.for_process("native")
    # Processes that this one starts use it too.
    os.environ[DIRECTORY_VARIABLE] = str(fallback)
    return scratch.trusted(fallback / name)


def _named() -> Path:
    named = os.environ.get(DIRECTORY_VARIABLE)
    if not named:
        raise FileNotFoundError(DIRECTORY_VARIABLE)
    return Path(named)


def _beside() -> Path:
    beside = HERE / "__pycache__"
    beside.mkdir(exist_ok=True)
    with tempfile.TemporaryFile(dir=beside):
        return beside


#: Directory of this version's compiled code.
CACHE: Final = find_cache()


def is_compiled() -> bool:
    """Whether all loops have been compiled, on this kind of processor."""
    return compiled_mark().exists()


def has_usual() -> bool:
    """Whether the usual loops have been compiled."""
    return usual_mark().exists() or is_compiled()


def suffices() -> bool:
    """Whether those loops have been compiled that the apps of this process wait for."""
    return has_usual() if os.environ.get(USUAL_VARIABLE) else is_compiled()


def compiled_mark() -> Path:
    """The file that exists when all loops have been compiled."""
    # Code compiled for one processor is not used on another one.
    return CACHE / f"compiled-{_processor()}"


def usual_mark() -> Path:
    """The file that exists when the usual loops have been compiled."""
    return CACHE / f"usual-{_processor()}"


def _processor() -> str:
    """Digest of the kind of processor, with its features where the system lists them."""
    kind = platform.machine()
    with suppress(OSError):
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
        kind += "".join(re.findall(r"^(?:model name|flags|Features)\b.*", first, re.MULTILINE))
    return hashlib.blake2b(kind.encode(), digest_size=8).hexdigest()
