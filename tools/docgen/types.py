"""Generated tables of docs/types.md: the conversions that each converting module declares.

To add a table, declare a ``Conversions`` value in the module that converts, see
``pyspark_nats.conversions``, and name it in ``TABLES``.
"""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Final

from mesh.mapping import conversions as payloads
from mesh.model import column_conversions
from mesh.receiver.types import column_values
from pyspark_nats import sql_types

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_nats.conversions import Conversions

BEGIN: Final = "<!-- made by `make docs`: begin -->"
END: Final = "<!-- made by `make docs`: end -->"

#: In the order of the page; tables of one outside world are neighbours.
TABLES: Final[tuple[Conversions, ...]] = (
    payloads.JSON_READ,
    payloads.JSON_WRITTEN,
    payloads.TEXT_READ,
    payloads.TEXT_WRITTEN,
    payloads.MSGPACK_READ,
    payloads.MSGPACK_WRITTEN,
    payloads.AVRO_READ,
    payloads.AVRO_WRITTEN,
    payloads.PROTOBUF_READ,
    payloads.PROTOBUF_WRITTEN,
    payloads.ARROW_READ,
    payloads.ARROW_WRITTEN,
    column_conversions.POSTGRESQL,
    column_conversions.MYSQL,
    column_conversions.SQLITE,
    column_conversions.REDIS,
    column_values.PG_READ,
    column_values.MYSQL_READ,
    column_values.SQLITE_READ,
    sql_types.SPARK,
    sql_types.SPARK_READ,
)


def types_document(root: Path) -> str:
    """Text of docs/types.md: the hand-written rule, and the tables."""
    text = (root / "docs" / "types.md").read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    sections = [
        section for world, tables in groupby(TABLES, lambda table: table.world)
        for section in (f"### {world}", *map(markdown, tables))
    ]  # fmt: skip
    return f"{before}{BEGIN}\n\n" + "\n\n".join(sections) + f"\n\n{END}{after}"


def markdown(table: Conversions) -> str:
    """One table with its notes."""
    rows = [(table.direction, *table.columns), ("---",) * (1 + len(table.columns))]
    rows += [(kind, *map(str, cells)) for kind, cells in table.rows.items()]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if table.notes:
        lines += ["", textwrap.fill(" ".join(table.notes), 100, break_on_hyphens=False)]
    return "\n".join(lines)
