"""Conflicts in an ordered stage: which chunks may be processed together although they touch state.

Two causes conflict if one writes state that the other reads or writes.  Where both name the rows
by the same attributes of a table, only chunks of the same key conflict: the look-up of one user
may go before or after the update of another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_nats.arrow import ArrowArray

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mesh.operators.base import Bools, EventBatch, Longs
    from mesh.operators.dataflow.chunk_queue import Cause, ChunkQueue
    from mesh.operators.dataflow.graph import DataflowNode, StateAccess


class CauseOrder(Enum):
    """The part of the order of two causes that matters."""

    FREE = auto()
    #: Of chunks with the same key.
    BY_KEY = auto()
    WHOLE = auto()


class ConflictTable:
    """The causes of a stage that conflict.

    ``order``: the nodes of the stage, in the sequence in which they process a batch; ``reads``: by
    channel, the nodes that read it.
    """

    def __init__(
        self,
        nodes: Sequence[DataflowNode],
        order: Sequence[int],
        reads: Mapping[str, Sequence[int]],
    ) -> None:
        self._nodes = nodes
        self._reads = reads
        self._rank = {number: rank for rank, number in enumerate(order)}
        self._cache: dict[Cause, tuple[frozenset[StateAccess], bool]] = {}
        causes: dict[Cause, tuple[frozenset[StateAccess], bool]] = {
            (number, channel): self._of(number, channel)
            for number in order
            for channel in (None, *nodes[number].reads)
        }
        self._keys = _common_keys([a for accesses, _ in causes.values() for a in accesses])
        self._orders = {
            (one, other): CauseOrder.WHOLE
            if causes[one][1] or causes[other][1]
            else self._order(causes[one][0], causes[other][0])
            for one in causes
            for other in causes
        }
        #: By table, the accesses to rows by key, with their causes.
        self._keyed: dict[str, list[tuple[Cause, StateAccess]]] = {}
        for cause, (accesses, _) in causes.items():
            for access in accesses:
                if access.keys and self._keys[access.thing]:
                    self._keyed.setdefault(access.thing, []).append((cause, access))

    def _of(self, number: int, channel: str | None) -> tuple[frozenset[StateAccess], bool]:
        """All accesses that an event of ``channel`` at a node causes; whether one is stepwise."""
        entry = self._cache.get((number, channel))
        if entry is None:
            node = self._nodes[number]
            accesses, steps = set(node.accesses_by(channel)), node.is_stepwise
            if channel is None:
                accesses = _without_keys(accesses)
            for outlet in node.outlets(channel):
                for reader in self._reads.get(outlet, ()):
                    if reader == number:
                        continue
                    further, also = self._of(reader, outlet)
                    # Their keys are attributes of other events.
                    accesses |= _without_keys(further)
                    steps = steps or also
            entry = self._cache[number, channel] = frozenset(accesses), steps
        return entry

    def _order(self, one: Collection[StateAccess], other: Collection[StateAccess]) -> CauseOrder:
        order = CauseOrder.FREE
        accesses = {*one, *other}
        for a in accesses:
            for b in accesses:
                if not a.conflicts_with(b):
                    continue
                by_key = a.keys and b.keys and self._keys.get(a.thing)
                if not by_key or (a.changes and b.changes and a.reorders and b.reorders):
                    return CauseOrder.WHOLE
                order = CauseOrder.BY_KEY
        return order

    def order(self, cause: Cause, group: Collection[Cause]) -> CauseOrder:
        """The part that matters of the order of ``cause``, any number of times, and ``group``."""
        orders = {self._orders[cause, other] for other in (cause, *group)}
        if CauseOrder.WHOLE in orders:
            return CauseOrder.WHOLE
        return CauseOrder.BY_KEY if CauseOrder.BY_KEY in orders else CauseOrder.FREE

    def commutes_with(self, cause: Cause, group: Collection[Cause]) -> bool:
        """Whether ``cause``, any number of times, may be reordered with all of ``group``."""
        return self.order(cause, group) is CauseOrder.FREE

    def barriers(self, queue: ChunkQueue) -> Longs:
        """int64[n], growing: the latest chunk that some chunk, up to this one, has to follow.

        Chunks ``a`` to ``b`` may be processed together, node by node, if ``barriers[b] < a``.
        """
        latest = np.full(len(queue), -1, dtype=np.int64)
        inputs = list(queue.inputs())
        for accesses in self._keyed.values():
            runs = [
                _KeyedRun(
                    self._rank[cause[0]], access.changes, chunks, self._key_of(access, events)
                )
                for cause, events, chunks in inputs
                for other, access in accesses
                if other == cause
            ]
            if runs:
                _raise_barriers(latest, runs)
        return np.maximum.accumulate(latest)

    def _key_of(self, access: StateAccess, events: EventBatch) -> list[ArrowArray]:
        attributes = dict(access.keys)
        return [events.rows.column(attributes[name]) for name in self._keys[access.thing]]


@dataclass(frozen=True, slots=True)
class _KeyedRun:
    """The accesses of a run's events to one table, by key."""

    #: Place of the node among those of the stage.
    rank: int
    writes: bool
    #: int64[n], the chunk of each event.
    chunks: Longs
    #: The parts of the key.
    columns: Sequence[ArrowArray]

    def must_follow(self, earlier: _KeyedRun) -> bool:
        """Whether its accesses must not be processed with earlier ones of the same key.

        They may if the other node comes first in a batch, too; a node applies its own writes in
        order.
        """
        if self.writes and earlier.writes:
            return earlier.rank > self.rank
        return (self.writes or earlier.writes) and earlier.rank >= self.rank


def _raise_barriers(barriers: Longs, runs: Sequence[_KeyedRun]) -> None:
    """Enter for each chunk the last one before it that it must follow."""
    codes = _codes([run.columns for run in runs])
    chunks = np.concatenate([run.chunks for run in runs])
    owner = np.repeat(np.arange(len(runs)), [len(run.chunks) for run in runs])
    place = np.lexsort((chunks, codes))
    codes, chunks, owner = codes[place], chunks[place], owner[place]
    is_new = np.r_[True, codes[1:] != codes[:-1]]
    #: The first row with the code of each, and the first with its code and chunk.
    of_code = _first(is_new)
    of_chunk = _first(is_new | np.r_[True, chunks[1:] != chunks[:-1]])
    for number, run in enumerate(runs):
        earlier = [n for n, other in enumerate(runs) if run.must_follow(other)]
        rows = np.flatnonzero((owner == number) & (of_chunk > of_code))
        if earlier and len(rows):
            last = np.where(np.isin(owner, earlier), np.arange(len(owner)), -1)
            before = np.maximum.accumulate(last)[of_chunk[rows] - 1]
            is_same_key = before >= of_code[rows]
            np.maximum.at(barriers, chunks[rows[is_same_key]], chunks[before[is_same_key]])


def _first(is_new: Bools) -> Longs:
    """int64[n], the first row of the group of each; ``is_new``: whether a group begins."""
    starts = np.flatnonzero(is_new)
    return np.repeat(starts, np.diff(np.r_[starts, len(is_new)]))


def _codes(keys: Sequence[Sequence[ArrowArray]]) -> Longs:
    """int64[n], equal for equal keys; nulls are equal to each other."""
    codes: Longs = np.zeros(sum(len(columns[0]) for columns in keys), dtype=np.int64)
    for parts in zip(*keys, strict=True):
        encoded: Any = pc.dictionary_encode(pa.chunked_array(parts).combine_chunks())
        indices = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
        codes = codes * (len(encoded.dictionary) + 1) + indices + 1
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    return codes


def _common_keys(accesses: Collection[StateAccess]) -> dict[str, tuple[str, ...]]:
    """By table, the attributes by which all of its keyed accesses name rows."""
    common: dict[str, set[str]] = {}
    for access in accesses:
        if access.keys:
            keys = {name for name, _ in access.keys}
            common[access.thing] = common.get(access.thing, keys) & keys
    return {thing: tuple(sorted(names)) for thing, names in common.items()}


def _without_keys(accesses: Collection[StateAccess]) -> set[StateAccess]:
    return {replace(access, keys=()) if access.keys else access for access in accesses}
