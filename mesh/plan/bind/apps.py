"""Binding of a whole app: its definitions, then its queries and partitions in the order written.

A stream without a definition gets its attributes from the first query that inserts into it; so it
is known to the queries after that one, as in the reference engine.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from mesh.errors import MeshError
from mesh.language.syntax import Partition, Query
from mesh.plan.annotations import check_app
from mesh.plan.bind.definitions import bind_definitions
from mesh.plan.bind.names import AppNames
from mesh.plan.bind.partitions import bind_partition
from mesh.plan.bind.queries import bind_query
from mesh.plan.bound import BoundApp, BoundPartition, BoundQuery
from mesh.plan.diagnostics import Diagnostics, TooManyErrors

if TYPE_CHECKING:
    from mesh.language.syntax import App


def bind(app: App) -> BoundApp:
    """Resolve every name and type of ``app``.

    Raises:
        MeshError: MESH-L2xx for a name that is not defined or a part that doesn't fit;
            ``MeshErrors`` for several. An app without a name is bound; its name is empty then.
    """
    problems, names = Diagnostics(), AppNames()
    bound = None
    with contextlib.suppress(TooManyErrors):
        bound = bind_app(app, names, problems)
    problems.raise_any()
    assert bound is not None, "what could not be bound has been told"
    return bound


def bind_app(app: App, names: AppNames, problems: Diagnostics) -> BoundApp:
    """Bind the correct parts of ``app``; errors in the others go to ``problems``.

    ``names`` may have names already: of parts that can't be read.
    """
    check_app(app.annotations, problems)
    defined = bind_definitions(app.definitions, names, problems)
    queries: list[BoundQuery] = []
    partitions: list[BoundPartition] = []
    numbered = QueryNames(problems)
    outside = 0
    for element in app.elements:
        if isinstance(element, Query):
            outside += 1
            name = numbered.name(element, f"query-{outside}")
            query = bind_query(element, name, names, problems)
            if query is not None:
                queries.append(query)
        elif isinstance(element, Partition):
            number = len(partitions) + 1
            inside = [
                numbered.name(q, f"partition-{number}-query-{n}")
                for n, q in enumerate(element.queries, 1)
            ]
            partition = bind_partition(element, inside, names, problems)
            if partition is not None:
                partitions.append(partition)
    streams = {**names.streams, **names.inner}
    return BoundApp(
        app.name or "",
        tuple(stream.schema for stream in streams.values() if stream.schema is not None),
        tuple(queries),
        tuple(defined.tables),
        tuple(defined.windows),
        tuple(defined.triggers),
        tuple(defined.scripts),
        tuple(defined.aggregations),
        tuple(partitions),
        app.annotations,
        tuple(defined.stream_annotations),
        tuple((name, stream.position) for name, stream in streams.items()),
    )


class QueryNames:
    """The names of an app's queries, each given once."""

    def __init__(self, problems: Diagnostics) -> None:
        self._problems = problems
        self._count = 0
        self._taken: set[str] = set()

    def name(self, query: Query, otherwise: str) -> str:
        """The name of ``query``, or ``otherwise`` if it has none.

        A name that is in use is reported as MESH-L212.
        """
        self._count += 1
        query_name = query.name or otherwise
        # Numbers go through the whole app in the engine, and its names collide with given ones.
        for name in {query_name: None, query.name or f"query_{self._count}": None}:
            if name in self._taken:
                self._problems.add(
                    MeshError(
                        "MESH-L212",
                        f'query name "{name}" is given twice',
                        hint="Names of queries are unique in an app; those without one are called "
                        "by their number, from 1: query-1, and query_1 in the reference engine.",
                        position=query.position,
                    )
                )
            self._taken.add(name)
        return query_name
