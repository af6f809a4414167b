"""Shape of the tests of tables of conversions: each cell of a table is a test.

SAMPLES = {"int": Sample(7, {"string": "7", "int": 7}, beyond={"int": 1 << 40})}

@pytest.mark.parametrize(("kind", "column", "cell"), cells(CONVERSIONS))
def test_each_cell(kind: str, column: str, cell: Cell) -> None:
    check(cell, SAMPLES[kind], column, lambda value: converted(kind, column, value))
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_nats.conversions import ConversionOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_nats.conversions import ConversionCell, Conversions


class EventRefusedError(Exception):
    """The converting code refused the event."""


class AppRefusedError(Exception):
    """The converting code refused the app at its deploy."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Values of an outside type."""

    value: Any
    #: The value inside by column, for the cells that accept it.
    inside: Mapping[str, Any] = field(default_factory=dict)
    #: By column: a value that is refused although others of the type are not.
    beyond: Mapping[str, Any] = field(default_factory=dict)


def cells(table: Conversions) -> list[Any]:
    """A parameter (outside type, column, cell) for each cell."""
    return [
        pytest.param(kind, column, cell, id=f"{kind}-{column}")
        for kind, row in table.rows.items()
        for column, cell in zip(table.columns, row, strict=True)
    ]


def check(cell: ConversionCell, sample: Sample, column: str, convert: Callable[[Any], Any]) -> None:
    """Compare a cell with the outcome of ``convert``, which raises the errors of this module."""
    match cell.outcome:
        case ConversionOutcome.NO:
            with pytest.raises(AppRefusedError):
                convert(sample.value)
        case ConversionOutcome.REFUSED:
            with pytest.raises(EventRefusedError):
                convert(sample.value)
        case ConversionOutcome.EXACT | ConversionOutcome.TEXT:
            found, expected = convert(sample.value), sample.inside[column]
            assert type(found) is type(expected)
            assert _are_same(found, expected), f"{found!r} is not {expected!r}"
    if cell.refused:
        with pytest.raises(EventRefusedError):
            convert(sample.beyond[column])


def _are_same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other)
