"""Check of an executor: its Python has what tasks of the mesh import, in the same versions."""

from __future__ import annotations

import importlib
import platform
from importlib import metadata
from typing import TYPE_CHECKING, Final

import mesh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: Set in the environment of executors of a cluster.
VARIABLE: Final = "MESH_SPARK_CLUSTER"
#: What tasks and the driver exchange is pickled by these.
_PACKAGES: Final = ("pyspark", "pyarrow", "numpy", "numba")
#: What tasks import.
_MODULES: Final = (
    "mesh.jetstream.task_store",
    "mesh.spark.partition_task",
    "mesh.spark.shared_query.slot",
    "mesh.spark.stateless_task",
    "pyspark_nats.sink.writer",
)


def versions() -> dict[str, str]:
    """The versions of Python, and of the packages that must be the same."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"Python": python, "mesh": mesh.__version__} | {
        name: metadata.version(name) for name in _PACKAGES
    }


def faults(expected: dict[str, str]) -> Callable[[Iterable[int]], Iterator[str]]:
    """A function that yields, on an executor, what it lacks.

    Args:
        expected: ``versions`` of the driver.
    """

    def look(_: Iterable[int]) -> Iterator[str]:
        where = platform.node()
        for name in _MODULES:
            try:
                importlib.import_module(name)
            except ImportError as error:
                yield f"{where}: {error}"
        for name, version in versions().items():
            if version != expected[name]:
                yield f"{where} has {name} {version}, the worker {expected[name]}"

    return look
