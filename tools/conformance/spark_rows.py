"""Steps of a case as the rows that a source gives: messages with range markers, or typed rows.

A Spark source of rows that were laid out before: one file for each micro-batch and partition.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow

from mesh.spark.instance_io import METADATA, InputPosition
from mesh.spark.sink_rows import ARROW_TYPE, JSON_TYPE, TIME_COLUMN
from pyspark_nats import encode
from pyspark_nats.arrow import ipc_stream
from pyspark_nats.source.rows import MARKED, MESSAGE, RANGE_END, RANGE_START
from tools.conformance.script import StepCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from mesh.model.app import GroupInput
    from mesh.model.values import JsonObject
    from tools.conformance.script import Step


FORMAT: Final = "mesh-cases"

Offset = dict[str, int]


def marked_rows(
    inputs: Mapping[str, GroupInput], position: InputPosition, place: int, step: Step
) -> tuple[pa.RecordBatch, InputPosition]:
    """A step as rows of the source, and the position after it.

    ``inputs``: by JetStream stream; ``place``: the step's number, which is in the first row. The
    events are one message, with the broker's time.  A question has a number in the log and no
    message; no time passes.
    """
    starts = position.offsets
    sent = step if isinstance(step, StepCall) else None
    passed = {} if sent is None else {"time_ms": sent.now_ms}
    ends = {stream: {**start, **passed} for stream, start in starts.items()}
    rows = [_marker(RANGE_START, stream, start, str(place)) for stream, start in starts.items()]
    if sent is None:
        # A change makes another state, which is another position.
        ends[next(iter(ends))]["sequence"] += 1
    elif sent.rows is not None:
        stream, group_input = next(
            (s, i) for s, i in inputs.items() if i.channel.stream.name == sent.stream
        )
        ends[stream]["sequence"] += 1
        content_type, data, event_time_ms = _message(sent)
        rows.append(
            {
                "kind": MESSAGE,
                "stream": stream,
                "sequence": ends[stream]["sequence"],
                "time_ms": sent.now_ms,
                "event_time_ms": event_time_ms,
                "subject": group_input.channel.subject(),
                "content_type": content_type,
                "data": data,
            }
        )
    rows += [_marker(RANGE_END, stream, end) for stream, end in ends.items()]
    return pa.RecordBatch.from_pylist(rows, MARKED), InputPosition.of(ends, ends)


def _marker(
    kind: int, stream: str, offset: Mapping[str, int], subject: str | None = None
) -> JsonObject:
    return {"kind": kind, "stream": stream, "subject": subject, **offset}


def _message(sent: StepCall) -> tuple[str, bytes, int | None]:
    """Content type, data and the header's time; JSON if that can express the events."""
    rows, times = sent.rows, sent.time_ms
    assert rows is not None
    assert times is not None
    is_now = bool((times == sent.now_ms).all())
    if _is_plain(rows) and (times == times[0]).all():
        events = encode.to_json(rows).to_pylist()
        data = events[0] if len(events) == 1 else b"[" + b",".join(events) + b"]"
        return JSON_TYPE, data, None if is_now else int(times[0])
    if not is_now:
        rows = rows.append_column(TIME_COLUMN, pa.array(times))
    return ARROW_TYPE, ipc_stream(rows), None


def _is_plain(rows: pa.RecordBatch) -> bool:
    """Whether JSON can express them: no objects, no infinities, and some attribute."""
    for column in rows.columns:
        if pa.types.is_binary(column.type):
            return False
        if pa.types.is_floating(column.type):
            values = column.drop_null().to_numpy()
            if not np.isfinite(values).all():
                return False
    return bool(rows.num_columns)


def typed_rows(place: int, sent: StepCall) -> pa.RecordBatch:
    """Events as rows of a source that decodes; the sequence is the step's number."""
    assert sent.rows is not None
    assert sent.time_ms is not None
    count = sent.rows.num_rows
    columns = [
        *sent.rows.columns,
        pa.array([place] * count, pa.int64()),
        pa.array(range(count), pa.int64()),
        pa.array([sent.now_ms] * count, pa.int64()),
        pa.array(sent.time_ms, pa.int64()),
        pa.nulls(count, pa.string()),
        pa.nulls(count, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=[*sent.rows.schema.names, *METADATA])


def path_of(directory: Path, turn: int, part: int) -> Path:
    """The file of one partition of one micro-batch; without it the partition has no rows."""
    return directory / f"{turn}-{part}.arrow"


def write(path: Path, rows: pa.RecordBatch) -> None:
    """Lay out the rows of one partition of one micro-batch."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)


def reader(session: SparkSession, directory: Path, turns: int, parts: int = 1) -> Any:
    """A reader of the rows in ``directory``: ``turns`` micro-batches of ``parts`` partitions."""
    session.dataSource.register(CasesDataSource)
    options = {"path": str(directory), "turns": str(turns), "parts": str(parts)}
    return session.readStream.format(FORMAT).options(**options)


class CasesDataSource(DataSource):
    """``format("mesh-cases")``; options ``path``, ``turns`` and ``parts``."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return FORMAT

    def streamReader(self, schema: StructType) -> CasesReader:
        """For ``session.readStream``."""
        options = self.options
        return CasesReader(Path(options["path"]), int(options["turns"]), int(options["parts"]))


class CasesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Delivers one turn per micro-batch."""

    def __init__(self, directory: Path, turns: int, parts: int) -> None:
        self._directory = directory
        self._turns = turns
        self._parts = parts

    def initialOffset(self) -> Offset:
        """Before the first turn."""
        return {"turn": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """None; the reader itself gives a turn at a time."""
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The next turn, until all are done."""
        return {"turn": min(start["turn"] + 1, self._turns)}

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing to prepare: all rows exist from the start."""

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The partitions of each turn."""
        turns = range(start["turn"], end["turn"])
        return [InputPartition((turn, part)) for turn in turns for part in range(self._parts)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows that were laid out for it, if any."""
        turn, part = partition.value
        path = path_of(self._directory, turn, part)
        if path.exists():
            with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as stored:
                yield from stored

    def commit(self, end: Offset) -> None:
        """Nothing to do."""
