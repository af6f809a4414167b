"""Work items that the shared query's planner gives to its tasks, and the outcomes they report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from mesh.spark.shared_query.members import Offsets
    from pyspark_nats.source.ranges import StreamRange

#: Kinds of work items: a batch of a part, or the report that a member was admitted or removed, or
#: failed.
WORK: Final = "work"
ADMITTED: Final = "admitted"
REMOVED: Final = "removed"
FAILED: Final = "failed"

#: Prefix of a failure because a member's stream does not answer, though the server does.
UNANSWERED: Final = "no answer from a stream"

#: Columns of the shared query's rows: the outcome of one work item each.
OUTCOME_DDL: Final = (
    "kind string, instance string, generation long, part string, ends string, messages long, "
    "rows long, errors long, behind long, took_ms double, failure string"
)
_OUTCOME_TYPES: Final[dict[str, pa.DataType]] = {
    "kind": pa.string(),
    "instance": pa.string(),
    "generation": pa.int64(),
    "part": pa.string(),
    "ends": pa.string(),
    "messages": pa.int64(),
    "rows": pa.int64(),
    "errors": pa.int64(),
    "behind": pa.int64(),
    "took_ms": pa.float64(),
    "failure": pa.string(),
}
OUTCOME: Final = pa.schema([pa.field(name, kind) for name, kind in _OUTCOME_TYPES.items()])


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A piece of work of one batch."""

    kind: str
    instance: str
    generation: int
    file_name: str
    part: str = ""
    ranges: tuple[StreamRange, ...] = ()
    #: The position of the part afterwards.
    ends: Offsets | None = None
    #: Messages that wait after that.
    behind: int = 0
    #: Failure of an item that failed before there was work.
    failure: str | None = None
