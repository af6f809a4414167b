"""Finding, for each partial match, the first later event that passes a step's filter.

Conjuncts of the form ``e1.key == key`` over whole numbers, strings or bools become a join: only
events of equal key are looked at.  The rest of the filter is evaluated over pairs (partial match,
event): first the next few events of each, then twice as many for those without a match, and so on.
A pair on which it fails doesn't pass.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.language.syntax import BinaryOperator
from mesh.model.types import AttributeType
from mesh.operators.expressions import compile_filter, conjuncts
from mesh.plan.bound import BinaryExpression, BoundExpression, Column

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.functions.vectors import Mask, Vector
    from mesh.operators.base import Longs
    from mesh.operators.frame import Frame

#: Pairs evaluated at a time: some tens of megabytes of columns.
PAIRS = 1 << 18
#: Events that each partial match looks at first.
_FIRST_LOOK = 8

_WHOLE = frozenset({AttributeType.INT, AttributeType.LONG})
_JOINABLE = _WHOLE | {AttributeType.STRING, AttributeType.BOOL}


class StepMatcher:
    """The filter of one step, taken apart into keys and the rest."""

    def __init__(self, step: int, condition: BoundExpression | None) -> None:
        self._step = step
        self._keys: list[tuple[Column, Column]] = []
        rest: list[BoundExpression] = []
        for conjunct in conjuncts(condition) if condition is not None else ():
            key = self._as_key(conjunct)
            if key is not None:
                self._keys.append(key)
            else:
                rest.append(conjunct)
        self._rest: Callable[[Frame], Mask] | None = None
        if rest:
            self._rest = compile_filter(
                reduce(
                    lambda a, b: BinaryExpression(BinaryOperator.AND, a, b, AttributeType.BOOL),
                    rest,
                )
            )

    def _as_key(self, conjunct: BoundExpression) -> tuple[Column, Column] | None:
        """(earlier step's column, own column) if ``conjunct`` says that they are equal."""
        if not isinstance(conjunct, BinaryExpression):
            return None
        left, right = conjunct.left, conjunct.right
        if (
            conjunct.operator is not BinaryOperator.EQUAL
            or not isinstance(left, Column)
            or not isinstance(right, Column)
            or not (left.type in _JOINABLE and right.type in _JOINABLE)
            or not (left.type is right.type or {left.type, right.type} <= _WHOLE)
        ):
            return None
        if left.step == self._step and right.step < self._step:
            left, right = right, left
        return (left, right) if left.step < self._step == right.step else None

    def first_match(
        self,
        waiting: Frame,
        since: Longs,
        dead: Longs,
        events: Frame,
        candidates: Longs,
        failed: dict[int, str],
    ) -> Longs:
        """For each partial match the number of the event it takes.

        Args:
            waiting: the columns of n partial matches.
            since: length n; only events with a greater number count.
            dead: length n; only events with a smaller number count.
            events: the columns of m events.
            candidates: the numbers of those events that are of the step's stream, rising.
            failed: takes why an event failed for one of the partial matches, by its number.

        Returns:
            Length n; m where there is none.
        """
        none = events.length
        result = np.full(waiting.length, none, dtype=np.int64)
        if not waiting.length or not len(candidates):
            return result
        keys, own = self._codes(waiting, events, candidates)
        # Events by key and then by number; each partial match looks at one stretch of them.
        order = np.argsort(own, kind="stable")
        order = order[np.searchsorted(own[order], 0) :]
        numbers = candidates[order]
        span = none + 1
        places = own[order] * span + numbers
        first = np.searchsorted(places, keys * span + since, side="right")
        stop = np.searchsorted(places, keys * span + np.minimum(dead, none), side="left")
        alive = np.flatnonzero((keys >= 0) & (first < stop))
        if self._rest is None:
            result[alive] = numbers[first[alive]]
            return result
        look = _FIRST_LOOK
        while len(alive):
            open_ = []
            size = max(1, PAIRS // look)
            for at in range(0, len(alive), size):
                some = alive[at : at + size]
                end = np.minimum(first[some] + look, stop[some])
                hit = self._look(waiting, some, events, numbers, first[some], end, failed)
                found = hit >= 0
                result[some[found]] = numbers[hit[found]]
                first[some] = end
                open_.append(some[~found & (end < stop[some])])
            alive = np.concatenate(open_)
            look = min(2 * look, PAIRS)
        return result

    def _look(
        self,
        waiting: Frame,
        some: Longs,
        events: Frame,
        numbers: Longs,
        first: Longs,
        end: Longs,
        failed: dict[int, str],
    ) -> Longs:
        """The first place in ``[first, end)`` whose event passes, for each of ``some``; or -1."""
        assert self._rest is not None
        lengths = end - first
        starts = np.cumsum(lengths) - lengths
        places = np.arange(int(lengths.sum())) - np.repeat(starts - first, lengths)
        pairs = waiting.pairs(np.repeat(some, lengths), events, numbers[places])
        passes = np.flatnonzero(self._rest(pairs))
        hit = np.full(len(some), -1, dtype=np.int64)
        if len(passes):
            # The first of each: written backwards, the earliest stays.
            whose = np.searchsorted(starts, passes, side="right") - 1
            hit[whose[::-1]] = places[passes[::-1]]
        for pair in sorted(pairs.failures):
            # What comes behind the event that is taken isn't asked.
            whose_hit = hit[np.searchsorted(starts, pair, side="right") - 1]
            if whose_hit < 0 or places[pair] < whose_hit:
                failed.setdefault(int(numbers[places[pair]]), pairs.failures[pair])
        return hit

    def _codes(self, waiting: Frame, events: Frame, candidates: Longs) -> tuple[Longs, Longs]:
        """Numbers that are equal where all keys are; -1 where one is null."""
        mine = np.zeros(waiting.length, dtype=np.int64)
        theirs = np.zeros(len(candidates), dtype=np.int64)
        for earlier, own in self._keys:
            left = waiting.column(earlier).spread(waiting.length)
            right = events.column(own).spread(events.length).take(candidates)
            a, b = _joint_codes(left, right)
            width = int(max(a.max(initial=0), b.max(initial=0))) + 1
            both = np.concatenate([mine * width + a, theirs * width + b])
            null = np.concatenate([(mine < 0) | (a < 0), (theirs < 0) | (b < 0)])
            _, codes = np.unique(both, return_inverse=True)
            codes = np.where(null, -1, codes)
            mine, theirs = codes[: len(mine)], codes[len(mine) :]
        return mine, theirs


def _joint_codes(left: Vector, right: Vector) -> tuple[Longs, Longs]:
    if left.type is AttributeType.STRING:
        both = pa.concat_arrays([left.values, right.values]).dictionary_encode().indices
        codes = both.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    else:
        values = np.concatenate([left.values.astype(np.int64), right.values.astype(np.int64)])
        _, codes = np.unique(values, return_inverse=True)
        codes = np.where(np.concatenate([left.null_mask, right.null_mask]), -1, codes)
    return codes[: len(left)], codes[len(left) :]
