"""Functions and tables that expressions of one app refer to by name.

An app is compiled inside of ``using``, where ``compile_expression`` finds the environment.  So the
operators between them need not pass it on.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from mesh.functions.rows import Function
    from mesh.functions.vectors import Mask
    from mesh.operators.base import Longs
    from mesh.operators.frame import Frame
    from mesh.operators.gaps import Periodic
    from mesh.plan.bound import BoundExpression


class TableMembership(Protocol):
    """A table as ``x in T`` uses it."""

    def contains(self, condition: BoundExpression, frame: Frame) -> Mask:
        """bool[n], the rows of ``frame`` for which ``condition`` holds for a row of the table."""
        ...


class Content(Protocol):
    """A named window as a join uses it."""

    def content(self, instance: int = 0) -> tuple[pa.RecordBatch, Longs]:
        """The present rows, in the engine's order, and their times."""
        ...


class Aggregated(Protocol):
    """An aggregation as a join uses it."""

    @property
    def cells(self) -> object:
        """Its present values: an ``aggregations.rollup.Aggregation``, which uses this module."""
        ...


@dataclass(frozen=True)
class Environment:
    """``scripts``, ``tables``, named ``windows`` and ``aggregations``, by name.

    All may grow while the app is compiled.

    ``periodic``: the parts of the app that emit without events.
    ``salt``: distinguishes executors that run one app over different events, such as partitions,
    so that no two of them make the same ``UUID()``.  ``shard``: the name of this mesh among those
    that write tables of one database.
    """

    scripts: Mapping[str, Function] = field(default_factory=dict)
    tables: Mapping[str, TableMembership] = field(default_factory=dict)
    windows: Mapping[str, Content] = field(default_factory=dict)
    aggregations: Mapping[str, Aggregated] = field(default_factory=dict)
    salt: str = ""
    shard: str = ""
    periodic: list[Periodic] = field(default_factory=list)
    #: The time of a stored state; None: that of the question.
    clock_ms: int | None = None
    #: Places of the models that queries share, by kind and name.
    models: dict[str, object] = field(default_factory=dict)
    #: By kind and name of a query or a window: events that entered it, and that it emitted.
    counts: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def count_of(self, kind: str, name: str) -> list[int]:
        """The counter of an element: two numbers, to which it adds once a batch."""
        return self.counts.setdefault((kind, name), [0, 0])


_current: ContextVar[Environment | None] = ContextVar("environment", default=None)


def current() -> Environment:
    """The environment of the app that is being compiled; an empty one outside of ``using``."""
    return _current.get() or Environment()


@contextmanager
def using(environment: Environment) -> Iterator[None]:
    """Compile expressions in ``environment``."""
    token = _current.set(environment)
    try:
        yield
    finally:
        _current.reset(token)
