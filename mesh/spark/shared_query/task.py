"""Task of the shared query: runs batches of several members, one after the other.

It reads, computes and publishes a batch of a member's part in one process.  Spark receives only the
outcome, one row for each part.  A failure concerns only that member.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute

from mesh.spark import sink_rows
from mesh.spark.partition_task import PartitionTask, without_skipped
from mesh.spark.shared_query import members, pacing
from mesh.spark.shared_query.work import FAILED, OUTCOME, UNANSWERED, WORK, WorkItem
from mesh.spark.stateless_task import StatelessTask
from pyspark_nats.errors import UnavailableError
from pyspark_nats.protocol import frames
from pyspark_nats.protocol.connection import Connection, shared
from pyspark_nats.sink import messages_out
from pyspark_nats.sink.origin import Origin
from pyspark_nats.sink.publish import Publisher
from pyspark_nats.source import batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mesh.spark.shared_query.members import InputPartition, Member

#: The stubs have a dozen overloads for each function of Arrow, and reject most valid calls.
_compute: Any = pyarrow.compute
#: How long to wait for a server that is unavailable, seconds.
_SERVER_S: Final = 20.0


class SharedPartitionTask(PartitionTask):
    """The partition task with a wakeup directory for each part."""

    def wakeup(self, partition: int) -> Path:
        """See ``PartitionTask.wakeup``."""
        return members.wakeup_directory(Path(self.directory), str(partition)) / str(partition)


@dataclass(slots=True)
class _Counts:
    messages: int = 0
    rows: int = 0
    errors: int = 0


def outcomes(
    directory: Path, batch: int, work: Iterable[WorkItem], *, task: int = 0
) -> Iterator[pa.RecordBatch]:
    """Run work items; one row for each, with the columns of ``OUTCOME``.

    Args:
        directory: of the shared query.
        batch: its number.
        work: work items, in this order.
        task: number of the task in the batch.
    """
    for one in work:
        counts, failure = _Counts(), one.failure
        started_s = time.perf_counter()
        if one.kind == WORK:
            members.begin(directory, task, one.instance)
            try:
                if not _do(directory, batch, one, counts):
                    # The member was removed meanwhile.
                    continue
            except UnavailableError as error:
                if not _is_server_there(directory, one):
                    # Each of the others would wait for it.
                    raise
                failure = f"{UNANSWERED}: {error}"
            # A failure concerns only its member.
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
        took_ms = (time.perf_counter() - started_s) * 1000
        if one.kind == WORK and failure is None:
            _note_pace(directory, one, counts, took_ms)
        row = {
            "kind": FAILED if failure is not None else one.kind,
            "instance": one.instance,
            "generation": one.generation,
            "part": one.part,
            "ends": None if one.ends is None else orjson.dumps(one.ends).decode(),
            "messages": counts.messages,
            "rows": counts.rows,
            "errors": counts.errors,
            "behind": one.behind,
            "took_ms": took_ms,
            "failure": failure,
        }
        yield pa.RecordBatch.from_pylist([row], schema=OUTCOME)
    members.begin(directory, task, "")


def _is_server_there(directory: Path, one: WorkItem) -> bool:
    """Whether the server answers when a stream does not; waits for it within its time limit."""
    member = _member(directory, one.file_name)
    options = member.sink.connection if member is not None else None
    if options is None:
        return True
    with Connection(replace(options, timeout_s=_SERVER_S)) as connection:
        try:
            connection.retry_while_unavailable(
                "asking for the server", lambda: _subscribe_own_streams(connection)
            )
        except UnavailableError:
            return False
    return True


def _subscribe_own_streams(connection: Connection) -> None:
    answers = connection.reply_subjects(1)
    connection.send(frames.publish(answers[0], b""))
    connection.replies(answers)


def _do(directory: Path, batch: int, one: WorkItem, counts: _Counts) -> bool:
    member = _member(directory, one.file_name)
    if member is None:
        return False
    part = next(p for p in member.parts if p.key == one.part)
    rows = batches.read(part.options, part.form, one.ranges)
    made = (
        _with_state(member, part, rows, counts)
        if member.io.group.stateful
        else _without(member, part, rows, counts)
    )
    # Names this run of the batch: a later run of the same member counts its batches from 0 again.
    run = f"{member.io.assignment.epoch}.{member.generation}-{batch}"
    publisher = Publisher(shared(member.sink.connection), member.sink, Origin(run, part.number))
    errors = member.io.errors[0]
    room = messages_out.room(shared(member.sink.connection))
    for out in sink_rows.within_size(member.io, made, room):
        if out.num_rows:
            counts.rows += out.num_rows
            recorded = _compute.sum(_compute.equal(out.column("stream"), errors)).as_py() or 0
            counts.rows, counts.errors = counts.rows - recorded, counts.errors + recorded
            publisher.add(
                messages_out.with_schema_columns(
                    out, stream="", subject="", producer="", first_position=0
                )
            )
    publisher.finish()
    return True


def _note_pace(directory: Path, one: WorkItem, counts: _Counts, took_ms: float) -> None:
    member = _member(directory, one.file_name)
    if member is not None:
        path = members.pace_file(Path(member.directory), one.part)
        # The member may have been removed, with its directory.
        with suppress(FileNotFoundError):
            pacing.note(path, counts.messages, took_ms)


@lru_cache(maxsize=1024)
def _process_cache(directory: Path, file_name: str) -> Member:
    found = members.read(directory, file_name)
    if found is None:
        raise FileNotFoundError(file_name)
    return found


def _member(directory: Path, file_name: str) -> Member | None:
    try:
        return _process_cache(directory, file_name)
    except FileNotFoundError:
        return None


def _with_state(
    member: Member, part: InputPartition, rows: Iterator[pa.RecordBatch], counts: _Counts
) -> Iterator[pa.RecordBatch]:
    restored = frozenset([int(part.key)]) if part.is_restored else frozenset[int]()
    limits = part.options.message
    task = SharedPartitionTask(member.io, member.directory, restored, limits=limits)

    def counted() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            edges = _compute.sum(_compute.not_equal(batch.column("kind"), 0)).as_py() or 0
            counts.messages += batch.num_rows - edges
            yield batch

    return task(counted())


def _without(
    member: Member, part: InputPartition, rows: Iterator[pa.RecordBatch], counts: _Counts
) -> Iterator[pa.RecordBatch]:
    """Run a group without state: all routes from one input."""

    def counted() -> Iterator[pa.RecordBatch]:
        skips = member.io.skips(part.key)
        for batch in rows:
            counts.messages += without_skipped(batch, "_sequence", skips).num_rows
            yield batch

    return StatelessTask(member.io, part.key)(counted())
