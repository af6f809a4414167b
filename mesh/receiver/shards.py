"""Positions of the parts of a source's input, which several instances share.

Each part has a marker of its own.  A batch of events ends with the markers of the parts that it is
from, so that all are stored or none.  When a group is scaled, a part moves to another instance with
its marker; the expected sequence refuses the earlier owner.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mesh.receiver.positions import SourcePosition, commit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.model.cluster import Assignment
    from mesh.model.values import JsonMapping
    from mesh.receiver.positions import EventLines, PositionStore


def fence_of(assignment: Assignment) -> int:
    """The epoch of an instance for the parts that it reads.

    It grows with each move of the instance, and with each change of the number of instances.
    """
    return assignment.form << 32 | assignment.epoch


def token_of(shard: str) -> str:
    """A part's name as one token of a subject."""
    return re.sub(r"[^A-Za-z0-9_-]", lambda match: f"={ord(match[0]):02x}", shard)


class ShardStore:
    """The markers of the parts that one instance reads; used as a ``PositionStore``."""

    def __init__(self, stores: Mapping[str, PositionStore], whole: PositionStore) -> None:
        """The stores by part; ``whole`` has a position from before the source had parts."""
        self._stores = stores
        self._whole = whole
        self._at: dict[str, SourcePosition] = {}

    async def take_over(self) -> SourcePosition:
        """The positions of all parts that have one, stored again with this epoch.

        Raises:
            TakenOverError: a newer epoch has a part; NatsError, TimeoutError, OSError.
        """
        for shard, store in self._stores.items():
            self._at[shard] = await store.take_over()
        if all(at.number >= 0 for at in self._at.values()):
            return self._position()
        whole = (await self._whole.read()).values
        return self._position({"": whole} if whole else {})

    def _position(self, more: Mapping[str, object] | None = None) -> SourcePosition:
        values = {shard: at.values for shard, at in self._at.items() if at.number >= 0}
        number = max((at.number for at in self._at.values()), default=-1)
        return SourcePosition(number, {**(more or {}), **values}, is_current=True)

    async def write(
        self,
        before: SourcePosition,
        number: int,
        values: JsonMapping,
        subject: str = "",
        messages: Sequence[EventLines] = (),
    ) -> SourcePosition:
        """Store the positions of some parts with messages in one atomic batch.

        As ``PositionStore.write``; ``values`` has the positions by part, ``before`` is not used.
        """
        if not values:
            return SourcePosition(number, {}, is_current=True)
        named = [(shard, self._stores[shard]) for shard in values]
        markers = [store.marker(self._at[s], number, values[s]) for s, store in named]
        last = await commit(self._whole.client, self._whole.name, markers, subject, messages)
        if last is None:
            for _, store in named:
                await store.read()
            return self._position()
        for at, (shard, store) in enumerate(named, last - len(named) + 1):
            self._at[shard] = SourcePosition(number, values[shard], at, is_current=True)
            await store.purge()
        return SourcePosition(number, values, last, is_current=True)

    async def renew(self, before: SourcePosition) -> SourcePosition:
        """Store all positions again, so that the stream's ``max_age`` doesn't remove them."""
        held = {shard: at.values for shard, at in self._at.items()}
        return await self.write(before, before.number, held)
