"""Tables in a database, as values: their columns, the database, and the merging of rows.

Operators make rows for such a table, and ``mesh.store`` writes them; neither knows the other.

Look-ups of rows in a database: conditions over columns, as values.

Operators make them of conditions of queries, and ``mesh.store`` makes SQL of them.  A look-up finds
at least the rows that meet the condition: operators test each row that comes, so a database whose
texts or nulls compare in other ways changes nothing.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from mesh.model.column_types import Backend as Backend
from mesh.model.types import AttributeType
from mesh.model.values import Row

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from mesh.model.column_types import ColumnType


#: Length of a string column without ``field.length``, as in the reference engine.
STRING_LENGTH: Final = 254
#: Channels of a group's dataflow that lead to a database; no stream can have such a name.
_ROWS: Final = "@rows "
_PURGE: Final = "@purge "
_CHANGES: Final = "@changes "
#: Column of ``changes_channel``: whether the row was deleted.
DELETED: Final = "@deleted"
#: Column of rows that were read, where some don't fit: why; null for those that do.
UNFIT: Final = "#unfit"
#: Key column of a table without a primary key.
ROW_NUMBER: Final = "MESH_ROW"
#: The names of the mesh's own tables begin with it.
RESERVED: Final = "mesh_"
_FLOAT_MAX: Final = (2 - 2**-23) * 2.0**127
#: A group-by attribute without a value: no column of a primary key can be null.
NULL_KEYS: Final[Mapping[AttributeType, object]] = {
    AttributeType.STRING: "null",
    AttributeType.INT: -(2**31),
    AttributeType.LONG: -(2**63),
    AttributeType.FLOAT: -_FLOAT_MAX,
    AttributeType.DOUBLE: -sys.float_info.max,
    AttributeType.BOOL: -1,
}


class MergeRule(StrEnum):
    """Rule by which a column of a new row is merged into that of the row with the same key."""

    KEY = "key"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    #: That of the row with the greater ``LAST``; of the new row where there is no such column.
    LATEST = "latest"
    #: The time of the latest values.
    LAST = "last"


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column: ``length`` is the most characters of a string in a table that the mesh creates.

    ``actual``: its type in the database; None if the table was not read.
    """

    name: str
    type: AttributeType
    merge: MergeRule
    length: int = STRING_LENGTH
    actual: ColumnType | None = None


@dataclass(frozen=True, slots=True)
class RowLife:
    """Seconds after which a row leaves, and whether a change or a read begins them again."""

    seconds: int
    is_renewed: bool = False
    is_renewed_by_reads: bool = False


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table whose rows are merged by key: keys first, the time of the row before all."""

    name: str
    columns: tuple[StoredColumn, ...]
    #: The key column with the time that ``purge_channel`` refers to; empty for none.
    time: str = ""
    #: Column lists of ``@Index``.
    indexes: tuple[tuple[str, ...], ...] = ()
    #: When a row leaves by itself; None: never.
    life: RowLife | None = None

    @property
    def keys(self) -> tuple[StoredColumn, ...]:
        """The columns of the primary key."""
        return tuple(column for column in self.columns if column.merge is MergeRule.KEY)

    @property
    def values(self) -> tuple[StoredColumn, ...]:
        """The other columns."""
        return tuple(column for column in self.columns if column.merge is not MergeRule.KEY)

    @property
    def arrow(self) -> pa.Schema:
        """The schema of its rows."""
        # The agent of a worker needs the names of databases only.
        import pyarrow as pa

        return pa.schema([pa.field(c.name, c.type.arrow) for c in self.columns])


@dataclass(frozen=True, slots=True)
class Database:
    """A database and a login; ``database`` is the file of SQLite, the number in Redis."""

    backend: Backend
    database: str
    host: str = ""
    port: int | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    #: Further parameters of the driver, such as ``sslmode``.
    parameters: tuple[tuple[str, str], ...] = ()
    connect_timeout_s: float = 5.0

    def __str__(self) -> str:
        """The database without user and password, for messages."""
        if self.backend is Backend.SQLITE:
            return f"sqlite:{self.database}"
        port = "" if self.port is None else f":{self.port}"
        return f"{self.backend}://{self.host}{port}/{self.database}"


class StoreKind(StrEnum):
    """The types of ``@store`` that run."""

    RDBMS = "rdbms"
    REDIS = "redis"


class CachePolicy(StrEnum):
    """Which row leaves a full cache: the oldest, the one not used for longest, the least used."""

    FIFO = "FIFO"
    LRU = "LRU"
    LFU = "LFU"


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """``@cache(..)``: ``size`` in rows; ``retention_ms``: None, rows do not grow too old."""

    size: int
    policy: CachePolicy = CachePolicy.FIFO
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """``@store(type=.., ..)``.

    ``database``: None if ``source`` names one of the settings.  ``is_in_state``: whether the
    state has all rows; otherwise they are read from the database, and ``cache`` keeps some.
    ``is_refusable``: whether rows that the database refuses become failed events.
    """

    database: Database | None
    source: str | None = None
    table_name: str | None = None
    #: By attribute, the most characters.
    lengths: Mapping[str, int] = field(default_factory=dict)
    is_in_state: bool = True
    cache: CacheOptions | None = None
    is_refusable: bool = False
    kind: StoreKind = StoreKind.RDBMS
    life: RowLife | None = None


@dataclass(frozen=True, slots=True)
class StoreTarget:
    """Tables of one definition, and their store.

    ``shard``: column and value that tell rows of this mesh from those of others; None: there are no
    others.  ``is_in_state``: whether the state has all rows, and begins with those of the database.
    """

    options: StoreOptions
    tables: tuple[StoredTable, ...]
    shard: tuple[str, str] | None = None
    is_in_state: bool = False
    #: Whether its rows are read in the database, and what was read is repeated after a failure.
    is_repeated: bool = False


def rows_channel(table: str) -> str:
    """The channel of rows for a table."""
    return f"{_ROWS}{table}"


def purge_channel(table: str) -> str:
    """The channel of purges of a table: the time before which its rows are deleted."""
    return f"{_PURGE}{table}"


def changes_channel(table: str) -> str:
    """The channel of changes of a table: rows as they are then, and deleted ones (``DELETED``)."""
    return f"{_CHANGES}{table}"


def is_stored(channel: str) -> bool:
    """Whether the rows of a channel go to a database."""
    return channel.startswith((_ROWS, _PURGE, _CHANGES))


def changes_schema(table: StoredTable) -> pa.Schema:
    """Rows of ``changes_channel``."""
    import pyarrow as pa

    return table.arrow.append(pa.field(DELETED, AttributeType.BOOL.arrow))


def purge_schema() -> pa.Schema:
    """Rows of ``purge_channel``."""
    import pyarrow as pa

    return pa.schema([pa.field("before_ms", AttributeType.LONG.arrow)])


def name_problem(table: str, *, has_schemas: bool = True) -> str | None:
    """The reason against the name of a table that the mesh writes; None for a good one."""
    if is_reserved(table):
        return f'table "{table}" has a name of the mesh\'s own tables'
    if has_schemas and "." in table:
        return (
            f'table "{table}" has a name with a schema: give the name alone, and the schema as the '
            "search_path of the login, or as the database of the URL"
        )
    return None


def is_reserved(table: str) -> bool:
    """Whether a table, with or without its schema, has the name of one of the mesh's own.

    Several databases compare names without case.
    """
    return table.rpartition(".")[2].strip(' "`[]').casefold().startswith(RESERVED)


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
