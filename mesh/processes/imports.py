"""Imports of packages without the parts that a process does not use, most of their memory."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import cache
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Absent(MetaPathFinder):
    """Finder of modules that says of one package that it is not installed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        """Refuse the package; leave all others to the other finders."""
        if name == self._name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@contextmanager
def _without(name: str) -> Iterator[None]:
    """Let the import of a package fail; other modules may import it afterwards."""
    absent = _Absent(name)
    sys.meta_path.insert(0, absent)
    try:
        yield
    finally:
        sys.meta_path.remove(absent)


def import_nats() -> None:
    """Import the NATS client without aiohttp, which serves WebSocket connections: 9 MB."""
    with _without("aiohttp"):
        import nats.aio.transport  # noqa: F401


@cache
def import_arrow() -> None:
    """Import Arrow without pandas, which it looks for with its first array: 50 MB and 0.5 s.

    Arrow finds pandas later if it is asked for a data frame.
    """
    with _without("pandas"):
        import pyarrow as pa

        pa.array([1])


def import_spark() -> None:
    """Import Spark without pandas, which it looks for with the first call of the JVM: 38 MB.

    To convert arguments it asks a module of its tests whether NumPy is installed, and that one
    imports what tests may use.
    """
    with _without("pandas"), _without("google"):
        import pyspark.testing.utils  # noqa: F401
