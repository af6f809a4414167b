"""The compiled conditions of a pattern: programs of the machine, and predicates of Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mesh.operators.patterns import program as op
from mesh.plan.bound import (
    BoundExpression,
)

if TYPE_CHECKING:
    from mesh.operators.patterns.memory import Array


@dataclass(slots=True)
class Attributes:
    """Attributes of a stream's events that programs read: expressions over one event, step 0."""

    expressions: list[BoundExpression] = field(default_factory=list)

    def number(self, expression: BoundExpression) -> int:
        """The column of an expression, the same for an equal one."""
        if expression not in self.expressions:
            self.expressions.append(expression)
        return self.expressions.index(expression)


@dataclass(frozen=True, slots=True)
class FastPredicate:
    """A comparison of a value of the partial match with one of the event, each computed once.

    ``operation``: with the match's side first; ``match``, ``event``: the program of each side, from
    its first row to the one after the last.
    """

    operation: int
    match: tuple[int, int]
    event: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Predicate:
    """A part of a filter that only Python can compute.

    ``references``: the events that it reads, each a step and an index as written, in the order in
    which a request has their slots; ``has_time``: whether the time of the match follows them.
    """

    expression: BoundExpression
    references: tuple[tuple[int, int | None], ...]
    has_time: bool


@dataclass(slots=True)
class PredicatePrograms:
    """The conditions of all steps.

    ``static``: by step, the condition on its own event alone; ``fails``: whether any of it may
    fail; ``keys``: an equality of whole numbers by which matches are found; ``quick``: a comparison
    that is evaluated before the rest; ``bounds``: by step, the first row of the program of the rest
    and the one after the last; ``attributes``: by stream.
    """

    static: list[BoundExpression | None] = field(default_factory=list)
    fails: list[bool] = field(default_factory=list)
    keys: list[FastPredicate | None] = field(default_factory=list)
    quick: list[FastPredicate | None] = field(default_factory=list)
    bounds: list[tuple[int, int]] = field(default_factory=list)
    rows: list[tuple[int, int | float, int, int]] = field(default_factory=list)
    attributes: dict[str, Attributes] = field(default_factory=dict)
    #: Expressions by the row of the program with their value without their event.
    defaults: dict[int, BoundExpression] = field(default_factory=dict)
    #: Constant strings: the row that compares with each.
    texts: list[tuple[int, str]] = field(default_factory=list)
    predicates: list[Predicate] = field(default_factory=list)
    #: The reads of predicates in the machine's form: step and index, one row each.
    references: list[tuple[int, int]] = field(default_factory=list)
    #: By step, the number of its predicates.
    predicate_counts: list[int] = field(default_factory=list)

    def arrays(self) -> tuple[Array, Array]:
        """The program as whole numbers, and the same memory as doubles."""
        table = np.zeros((len(self.rows), op.PROGRAM_COLUMNS), dtype=np.int64)
        floats = table.view(np.float64)
        for number, (operation, a, b, c) in enumerate(self.rows):
            table[number] = (operation, 0, b, c)
            (floats if operation == op.FLOATING else table)[number, 1] = a
        return table, floats
