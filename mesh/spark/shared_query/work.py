"""What a carrier's planner gives its tasks to do, and what they tell of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from mesh.spark.shared_query.members import Offsets
    from pyspark_nats.source.ranges import StreamRange

#: What a piece of work is: a batch of a part; or word that a member is in, is out, can't be read.
WORK: Final = "work"
ADMITTED: Final = "admitted"
REMOVED: Final = "removed"
FAILED: Final = "failed"

#: How the failure of a member begins of which a stream does not answer, though the server does.
UNANSWERED: Final = "no answer from a stream"

#: What a carrier's rows say: one for each piece of work, when it is done.
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
    #: Where the part is when it is done.
    ends: Offsets | None = None
    #: Messages that wait behind that.
    behind: int = 0
    #: Of one that failed before there was work.
    failure: str | None = None
