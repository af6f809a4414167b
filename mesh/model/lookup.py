"""Look-ups of rows in a database: conditions over columns, as values.

Operators make them of conditions of queries, and ``mesh.store`` makes SQL of them.  A look-up finds
at least the rows that meet the condition: operators test each row that comes, so a database whose
texts or nulls compare in other ways changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from mesh.model.values import Row

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


class Comparison(StrEnum):
    """Comparison of a column with a value."""

    EQUAL = "=="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    #: The column's text has the value in it.
    CONTAINS = "contains"
    #: The value is None.
    IS_NULL = "is null"
    IS_NOT_NULL = "is not null"


@dataclass(frozen=True, slots=True)
class Compared:
    """``column``, compared with a value that is not null."""

    column: str
    how: Comparison
    value: Any = None


@dataclass(frozen=True, slots=True)
class AnyKey:
    """The values of ``columns``, in their order, are one of ``keys``; none of them is null."""

    columns: tuple[str, ...]
    keys: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class AllOf:
    """All parts hold; without parts it holds for every row."""

    parts: tuple[Clause, ...] = ()


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One of the parts holds; without parts it holds for no row."""

    parts: tuple[Clause, ...] = ()


Clause = Compared | AnyKey | AllOf | AnyOf
#: Every row of a table.
EVERY_ROW = AllOf()


@dataclass(frozen=True, slots=True)
class ReadRun:
    """A run that has looked rows up.

    ``number``: from 1, without gaps. ``until``: merged events and changes up to its end.
    ``known_ms``: the time up to which everything was known. ``continues``: whether rows of the run
    before were still at hand. ``rows``: by table, those that came.
    """

    number: int
    until: int
    known_ms: int
    continues: bool
    rows: Mapping[str, pa.RecordBatch]
