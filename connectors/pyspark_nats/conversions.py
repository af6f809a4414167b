"""Tables of conversions: for each pair of an outside and an inside type, the outcome.

A module that converts values declares a ``Conversions`` value for each direction, beside its code:

    CONVERSIONS = Conversions(
        "Avro", "read", {"int": (TEXT, EXACT, EXACT, EXACT, EXACT, REFUSED, NO)},
    )

Cells follow the order of ``columns``, which are Siddhi's types.  ``EXACT.unless("..")`` names the
values that are refused.  To publish a table, add it to ``TABLES`` in ``tools/docgen/types.py`` and
run ``make docs``.  ``tests/support/conversions.py`` turns each cell into a test.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Siddhi's types, the columns of most tables.
SIDDHI: Final = ("string", "int", "long", "float", "double", "bool", "object")


class ConversionOutcome(StrEnum):
    """Results of a conversion."""

    #: The same value.
    EXACT = "exact"
    #: The exact text of the value.
    TEXT = "text"
    #: The event is refused with the attribute, the value and the reason.
    REFUSED = "refused"
    #: The app is refused at its deploy.
    NO = "no"


@dataclass(frozen=True, slots=True)
class ConversionCell:
    """The outcome for a pair of types."""

    outcome: ConversionOutcome
    #: Values of the type that are refused, as words after "unless"; empty if there are none.
    refused: str = ""

    def unless(self, values: str) -> ConversionCell:
        """The same outcome, but for ``values``, which are refused."""
        return replace(self, refused=values)

    def __str__(self) -> str:
        return f"{self.outcome}, unless {self.refused}" if self.refused else str(self.outcome)


EXACT: Final = ConversionCell(ConversionOutcome.EXACT)
TEXT: Final = ConversionCell(ConversionOutcome.TEXT)
REFUSED: Final = ConversionCell(ConversionOutcome.REFUSED)
NO: Final = ConversionCell(ConversionOutcome.NO)


@dataclass(frozen=True, slots=True)
class Conversions:
    """The conversions between an outside world and this one, in one direction."""

    #: The outside world, such as "Avro"; the heading of the table.
    world: str
    direction: Literal["read", "written"]
    #: Cells in the order of ``columns``, by outside type.
    rows: Mapping[str, tuple[ConversionCell, ...]]
    columns: tuple[str, ...] = SIDDHI
    #: Rules of this table that are no cell: one paragraph, one sentence each.
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for kind, cells in self.rows.items():
            if len(cells) != len(self.columns):
                raise ValueError(f'{self.world}: row "{kind}" has {len(cells)} cells')
