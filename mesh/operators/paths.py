"""The ways from a cause through the queries of a group, numbered depth first.

The reference engine hands what a query puts out to the readers of the target stream at once, in
the order of the app, before the next reader of the first stream sees the event.  A way is a chain
of queries, and comparing the numbers of two ways says which is gone first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.operators.base import Longs
    from mesh.plan.bound import BoundQuery

#: More ways than this can only be a knot of queries that feed each other in many ways.
PATHS_MAX = 100_000


class Paths:
    """All ways through ``queries``, in the order of the app.

    ``roots``: by stream, the way of an external event; ``timers``: by query, that of its timer;
    ``order``: the queries' numbers so that each comes behind those that feed it.
    """

    def __init__(self, queries: Sequence[BoundQuery]) -> None:
        self._readers: dict[str, list[int]] = {}
        for number, query in enumerate(queries):
            for stream in query.input_streams:
                self._readers.setdefault(stream, []).append(number)
        self._targets = [query.target.name for query in queries]
        self.order = self._sort(queries)
        self._next: list[dict[int, int]] = [{} for _ in queries]
        self._count = 0
        self.timers: list[int] = []
        for number in range(len(queries)):
            self.timers.append(self._new())
            self._walk(self._targets[number], self.timers[-1])
        self.roots: dict[str, int] = {}
        for stream in self._readers:
            self.roots[stream] = self._new()
            self._walk(stream, self.roots[stream])
        self._tables = [self._table(number) for number in range(len(queries))]

    def through(self, query: int, paths: Longs) -> Longs:
        """The ways through ``query`` of events that come to its streams on ``paths``."""
        return self._tables[query][paths]

    def _new(self) -> int:
        self._count += 1
        if self._count > PATHS_MAX:
            raise MeshError(
                "MESH-O103",
                "the queries of a group feed each other in too many ways",
                detail=f"There are more than {PATHS_MAX} chains of queries.",
                hint="Put some of the queries into another execution group.",
            )
        return self._count - 1

    def _walk(self, stream: str, path: int) -> None:
        for reader in self._readers.get(stream, ()):
            own = self._next[reader][path] = self._new()
            self._walk(self._targets[reader], own)

    def _table(self, query: int) -> Longs:
        table = np.full(self._count, -1, dtype=np.int64)
        for path, own in self._next[query].items():
            table[path] = own
        return table

    def _sort(self, queries: Sequence[BoundQuery]) -> list[int]:
        order: list[int] = []
        # 1: being visited, 2: done.
        state = [0] * len(queries)

        def visit(number: int) -> None:
            if state[number] == 2:
                return
            if state[number] == 1:
                raise MeshError(
                    "MESH-O104",
                    f'query "{queries[number].name}" feeds itself',
                    detail=f'What it inserts into "{self._targets[number]}" comes back to it.',
                    hint="Insert into a stream that no query before it reads.",
                )
            state[number] = 1
            for reader in self._readers.get(self._targets[number], ()):
                visit(reader)
            state[number] = 2
            order.append(number)

        for number in reversed(range(len(queries))):
            visit(number)
        return order[::-1]
