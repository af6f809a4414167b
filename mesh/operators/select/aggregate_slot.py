"""One aggregator of a query: the aggregate that computes it, its argument and its conditions."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np

from mesh.errors import MeshError
from mesh.operators.expressions import compile_expression, compile_filter
from mesh.operators.select.aggregate_extraction import FAIL_ON_NULL, may_fail, names_aggregate
from mesh.operators.select.aggregates import (
    Average,
    CollectList,
    Conditions,
    Count,
    Deviation,
    Expiry,
    Sum,
)
from mesh.operators.select.collections import COLLECTIONS, CollectedValues, collected_items
from mesh.operators.select.distinct import DistinctCount, UnionSet
from mesh.operators.select.extremes import WindowExtreme
from mesh.operators.select.running_extremes import ExtremeEver, ExtremeSince

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.functions.vectors import Vector
    from mesh.operators.base import Bools
    from mesh.operators.frame import Evaluator, Frame
    from mesh.operators.select.aggregate_extraction import ExtractedAggregate
    from mesh.operators.select.aggregates import Aggregate
    from mesh.plan.bound import AggregateCall


def make_aggregate(call: AggregateCall, leaving: Expiry) -> Aggregate:
    """The aggregate that computes ``call``.

    ``leaving``: whether events expire, so that min and max have to remember the window's content.

    Raises:
        MeshError: MESH-O101, no aggregate computes it.
    """
    name, type = call.function.lower(), call.type
    match name:
        case "count":
            return Count()
        case "sum":
            return Sum(type)
        case "avg":
            return Average()
        case "stddev":
            return Deviation()
        case "min" | "max" if leaving is Expiry.TRACKED:
            return WindowExtreme(type, larger=name == "max")
        case "min" | "max" if leaving is Expiry.UNTRACKED:
            return ExtremeSince(type, larger=name == "max")
        case "min" | "max":
            return ExtremeEver(type, larger=name == "max")
        case "minforever" | "maxforever":
            return ExtremeEver(type, larger=name == "maxforever")
        case "and" | "or":
            return Conditions(every=name == "and")
        case "distinctcount":
            argument = call.arguments[0].type
            assert argument is not None, "the planner refuses a bare null here"
            return DistinctCount(argument)
        case "unionset":
            return UnionSet()
        case _ if name in COLLECTIONS:
            return CollectedValues(call)
        case _:
            raise MeshError(
                "MESH-O101",
                f'aggregator "{call.function}" has no kernel',
                detail="The planner accepted it, but this version can't compute it.",
                hint="Do manager and worker have the same version?",
            )


class AggregateSlot:
    """One aggregator of the query: its state, its argument, and the conditions it is read under."""

    def __init__(self, lifted: ExtractedAggregate, leaving: Expiry) -> None:
        self.aggregate = make_aggregate(lifted.call, leaving)
        self.listing = (
            cast("CollectList", self.aggregate) if hasattr(self.aggregate, "lists") else None
        )
        self.conditions = [compile_filter(condition) for condition in lifted.conditions]
        name, arguments = lifted.call.function, lifted.call.arguments
        #: Its name, if it has no answer to a null.
        self.fails_on_null = name if name.lower() in FAIL_ON_NULL else None
        self._argument: Evaluator | None = None
        if name.lower() in COLLECTIONS:
            self._argument = collected_items(lifted.call)
        elif arguments:
            self._argument = compile_expression(arguments[0])
        #: Whether it uses no other aggregator's value.
        self.is_apart = not any(map(names_aggregate, (*lifted.conditions, *arguments)))
        self.may_fail = may_fail(lifted)

    def argument_in(self, frame: Frame, reached: Bools | None = None) -> Vector | None:
        """Its argument in each row; records in ``frame`` where that fails and is ``reached``."""
        if self._argument is None:
            return None
        if reached is None:
            return self._evaluate(self._argument, frame)
        return frame.only(partial(self._evaluate, self._argument), reached)

    def _evaluate(self, evaluate: Evaluator, frame: Frame) -> Vector:
        argument = evaluate(frame)
        if self.fails_on_null:
            _fail_on_nulls(frame, argument, self.fails_on_null)
        return argument

    def active_mask(self, frame: Frame) -> Bools | None:
        """bool[n], the events for which it is evaluated; None for all."""
        if not self.conditions:
            return None
        reached = self.conditions[0](frame)
        for condition in self.conditions[1:]:
            reached = reached & condition(frame)
        return reached


def _fail_on_nulls(frame: Frame, argument: Vector, name: str) -> None:
    if argument.nulls is not None:
        for row in np.flatnonzero(argument.spread(frame.length).null_mask).tolist():
            frame.failures.setdefault(row, f"{name}: the condition is null")


def reset_counters(sites: Sequence[AggregateSlot]) -> list[int]:
    """For each aggregator the number of its resets.

    Aggregators that are evaluated in the same events share them.  One under a condition has its
    own.  Where one may fail, those before it process an event that it and those after it don't.
    """
    following = itertools.count(1)
    counters = [next(following) if site.conditions else 0 for site in sites]
    shared, is_used = 0, False
    for number, site in enumerate(sites):
        if site.may_fail and is_used:
            shared, is_used = next(following), False
        if not site.conditions:
            counters[number], is_used = shared, True
    return counters
