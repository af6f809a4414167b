"""Runs the work items of a slot: reads, computes and publishes a range of a part.

All of it happens in this process.  The state of a part stays in memory between its runs, and is
stored when the slot reports the part's position.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from mesh.clock import SystemClock
from mesh.spark import partition_task, sink_rows
from mesh.spark.partition_task import PartitionRun, PartitionTask, count_messages, without_skipped
from mesh.spark.stateless_task import SourceEvents, StatelessTask
from mesh.telemetry import traces
from pyspark_nats.errors import UnavailableError
from pyspark_nats.few_rows import first_of
from pyspark_nats.protocol import frames, jetstream
from pyspark_nats.protocol.connection import Connection, shared
from pyspark_nats.protocol.frames import header_values
from pyspark_nats.sink import messages_out, resting
from pyspark_nats.sink.markers import Origin
from pyspark_nats.sink.publish import RowPublisher
from pyspark_nats.source import batches
from pyspark_nats.source.rows import MessageRows
from pyspark_nats.source.typed_rows import Typed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mesh.spark.instance_io import InputPosition
    from mesh.spark.partition_task import LivePartition, Rows
    from mesh.spark.shared_query.background import BackgroundPublisher
    from mesh.spark.shared_query.members import InputPartition, Member, WorkItem
    from mesh.telemetry.traces import Trace
    from pyspark_nats.protocol.connection_options import ConnectionOptions
    from pyspark_nats.source.messages import Messages
    from pyspark_nats.source.ranges import StreamRange

#: Time to wait for a server that is unavailable, seconds.
_SERVER_S: Final = 20.0
#: The server's time of a message, in rows for groups with state and without.
_TIME_COLUMNS: Final = ("time_ms", "_timestamp_ms")
_CLOCK: Final = SystemClock()
#: Numbers the publishers of this process.
_numbers: Final = itertools.count(1)


@dataclass(slots=True)
class LiveState:
    """State of a partition after its last run, which may not be stored yet."""

    task: PartitionTask
    number: int
    position: InputPosition
    partition: LivePartition

    def store(self) -> None:
        """Store it in the partition's directory."""
        self.task.store(self.number, self.position, self.partition)


@dataclass(frozen=True, slots=True)
class _KeepingTask(PartitionTask):
    """The partition task that keeps the state in memory."""

    live: list[LiveState] = field(default_factory=list)

    def end_batch(self, number: int, position: InputPosition, partition: LivePartition) -> None:
        """See ``PartitionTask.end_batch``."""
        self.live[:] = [LiveState(self, number, position, partition)]

    def is_live(self, number: int, position: InputPosition) -> bool:
        """See ``PartitionTask.is_live``; no other process has the part."""
        return True


@dataclass(slots=True)
class PartRun:
    """Counts and state of one run of a part."""

    messages: int = 0
    #: Events in them, and events published.
    events_in: int = 0
    events_out: int = 0
    errors: int = 0
    #: The server's time before which no input of this run was stored, ms since 1970.
    since_ms: int = 0
    #: None for a group without state.
    live: LiveState | None = None
    #: The part's publisher, if it keeps output that is not acknowledged yet.
    publisher: RowPublisher | None = None
    #: The broker's times of the messages, a column for each batch.
    times: list[Any] = field(default_factory=list)
    #: When the output was published, by this machine's clock, ms since 1970; empty before that.
    published_ms: list[int] = field(default_factory=list)

    def published(self) -> None:
        """Record that the output is published; the server may still have to acknowledge it."""
        self.published_ms.append(_CLOCK.wall_ms())

    @property
    def timer_ms(self) -> int | None:
        """Time of the next timer in the state; None without one."""
        return self.live.partition.wakeup_ms() if self.live is not None else None

    @property
    def has_committed(self) -> bool:
        """Whether the run has written to a database."""
        stores = None if self.live is None else self.live.partition.stores
        return stores is not None and stores.has_committed

    @property
    def has_refused(self) -> bool:
        """Whether its output has rows that a database refused, and will soon keep no longer."""
        stores = None if self.live is None else self.live.partition.stores
        return stores is not None and stores.has_refused


def run(
    item: WorkItem,
    background: BackgroundPublisher | None = None,
    publisher: RowPublisher | None = None,
) -> PartRun:
    """Run a work item: read its ranges, compute, and publish the output.

    Args:
        item: the work.
        background: publishes the output after this returns; None to publish it now.
        publisher: of the part's run before, if that one has left it.

    Raises:
        UnavailableError: NATS, or a stream, does not answer; other errors of the member's own.
    """
    member, part = item.member, item.part
    assert part is not None
    done = PartRun()
    trace = traces.begin(
        f"process {member.io.group.name}",
        mesh_app=member.io.assignment.app,
        mesh_instance=member.name,
    )
    done.publisher = publisher
    try:
        _run(item, done, trace, background)
    except Exception as error:
        if trace is not None:
            trace.end(error)
        raise
    if trace is not None:
        trace.end(messaging_batch_message_count=done.messages)
    return done


def _run(
    item: WorkItem, done: PartRun, trace: Trace | None, background: BackgroundPublisher | None
) -> None:
    member, part = item.member, item.part
    assert part is not None
    if item.messages is None:
        rows = _of_ranges(item, done, trace)
    else:
        rows = _of_messages(item, item.messages, done, trace)
    # Small runs of other parts are published while a large one is.
    purpose = resting.PUBLISHING if background is None else "publishing in the background"
    connection = shared(member.sink.connection, purpose)
    publisher = done.publisher
    if publisher is None:
        # A name that no other publisher of the member has, in any process.
        name = f"{member.io.assignment.epoch}.{member.generation}-{os.getpid()}.{next(_numbers)}"
        origin = Origin(name, part.number, began_ms=item.began_ms)
        publisher = RowPublisher(connection, member.sink, origin, is_long_lived=True)
    publisher.begin_run(done.since_ms)
    errors = member.io.errors[0]
    room = messages_out.room(connection)
    output: list[pa.RecordBatch] = []
    for out in sink_rows.within_size(member.io, rows, room):
        if out.num_rows:
            # The rows of a batch are for one stream.
            if first_of(out, "stream") == errors:
                done.errors += out.num_rows
            else:
                done.events_out += sink_rows.event_count(out)
            lines = None if trace is None else trace.header_line() or None
            ready = messages_out.with_header_line(out, lines)
            if background is None:
                publisher.add(ready)
            else:
                output.append(ready)
    if background is None:
        if done.has_refused:
            publisher.finish()
        done.publisher = None if publisher.send() else publisher
        done.published()
    else:
        background.publish((member.file_name, part.key), publisher, output, done.published)


def _of_messages(
    item: WorkItem, messages: Messages, done: PartRun, trace: Trace | None
) -> Iterator[pa.RecordBatch]:
    """The output of a work item whose messages have come; there is at least one."""
    member, part = item.member, item.part
    assert part is not None
    (span,) = item.ranges
    done.since_ms = max(span.start_ms, int(messages.time_ns[0]) // 1_000_000)
    if trace is not None:
        trace.look(header_values(messages.header, traces.HEADER).to_pylist())
    if member.io.group.stateful:
        rows = MessageRows(messages, part.options.event_time_header)
        return _with_state(item, iter([rows]), done)
    typed = part.form.to_batches
    assert isinstance(typed, Typed), "a group without state reads typed rows"
    if StatelessTask(member.io, part.key).takes_all:
        return _decoded(item, typed, messages, done)
    return _without(item, typed(messages), done)


def _of_ranges(item: WorkItem, done: PartRun, trace: Trace | None) -> Iterator[pa.RecordBatch]:
    """The output of a work item whose messages have to be read."""
    part = item.part
    assert part is not None
    # The ends of the ranges are known here, and need no rows of their own.
    form = replace(part.form, has_markers=False)
    if trace is not None:
        form = replace(form, to_batches=_Watched(form.to_batches, trace))
    rows = batches.read(part.options, form, item.ranges)
    first = next(rows, None)
    done.since_ms = first_input_ms(item.ranges, first)
    return rows_of(item, rows if first is None else itertools.chain([first], rows), done)


def rows_of(
    item: WorkItem, rows: Iterator[pa.RecordBatch], done: PartRun
) -> Iterator[pa.RecordBatch]:
    """The output of a work item, computed while it is read; ``rows`` are its messages."""
    is_stateful = item.member.io.group.stateful
    return (_with_state if is_stateful else _without)(item, rows, done)


@dataclass(frozen=True, slots=True)
class _Watched:
    """The layout of rows; the trace refers to the messages that they are of."""

    to_batches: Callable[[Messages], Iterable[pa.RecordBatch]]
    trace: Trace

    def __call__(self, part: Messages) -> Iterable[pa.RecordBatch]:
        """The rows of some messages."""
        self.trace.look(header_values(part.header, traces.HEADER).to_pylist())
        return self.to_batches(part)


def first_input_ms(ranges: Sequence[StreamRange], first: pa.RecordBatch | None) -> int:
    """The time before which no message of ``ranges`` was stored, ms since 1970; 0 if unknown.

    The start of a range is that of the message before it, which may be much older: after a loss
    of NATS, messages at sequences of lost ones would look as if they were those.
    """
    earliest_ms = min((one.start_ms for one in ranges), default=0)
    column = next((c for c in _TIME_COLUMNS if first and c in first.schema.names), None)
    if len(ranges) != 1 or column is None or first is None:
        return earliest_ms
    return max(earliest_ms, int(first.column(column)[0].as_py()))


def is_server_there(member: Member) -> bool:
    """Whether the server answers when a stream does not; waits for it within its time limit."""
    options = member.sink.connection
    with Connection(replace(options, timeout_s=_SERVER_S)) as connection:
        try:
            connection.retry_while_unavailable(
                "asking for the server", lambda: _ping_server(connection)
            )
        except UnavailableError:
            return False
    return True


def _broker_ms(options: ConnectionOptions, js_stream: str) -> int:
    return jetstream.server_ms(shared(options, resting.PUBLISHING), js_stream)


def drop_state(member: Member, part: InputPartition) -> None:
    """Drop the state of a part that this process does not serve any more."""
    if member.io.group.stateful:
        partition_task.drop_state(member.directory, member.name, int(part.key))


def _ping_server(connection: Connection) -> None:
    answers = connection.reply_subjects(1)
    connection.send(frames.publish(answers[0], b""))
    connection.replies(answers)


def _with_state(item: WorkItem, rows: Iterator[Rows], done: PartRun) -> Iterator[pa.RecordBatch]:
    member, part = item.member, item.part
    assert part is not None
    restored = frozenset([int(part.key)]) if part.is_restored else frozenset[int]()
    limits = part.options.message
    task = _KeepingTask(
        member.io, member.directory, restored, limits=limits, states=member.states,
        broker_ms=partial(_broker_ms, member.sink.connection),
    )  # fmt: skip
    run = PartitionRun(task)
    run.begin(int(part.key), item.ranges)
    # A timer may have fired, and its rows may be published, before any message of this run came.
    timer_ms = run.next_timer_ms()
    if timer_ms is not None:
        start_ms = min((one.start_ms for one in item.ranges), default=0)
        done.since_ms = max(start_ms, min(done.since_ms, timer_ms))
    return _processed(run, task, rows, done)


def _processed(
    run: PartitionRun, task: _KeepingTask, rows: Iterator[Rows], done: PartRun
) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        done.messages += batch.num_rows
        done.times.append(partition_task.numbers_of(batch, "time_ms"))
        yield from run.process(batch)
    yield from run.finish()
    done.events_in += run.events
    (done.live,) = task.live


def _decoded(
    item: WorkItem, typed: Typed, messages: Messages, done: PartRun
) -> Iterator[pa.RecordBatch]:
    assert item.part is not None
    task = StatelessTask(item.member.io, item.part.key)
    while len(messages):
        decoded = typed.decoded(messages)
        if decoded.errors:
            yield from _without(item, typed.rows_of(messages, decoded), done)
        elif len(decoded.message):
            events = SourceEvents.of_decoded(messages, decoded)
            done.events_in += len(events)
            done.messages += count_messages(events.sequence)
            done.times.append(events.broker_ms)
            yield from task.run(events)
        messages = messages.slice(decoded.taken, len(messages))


def _without(
    item: WorkItem, rows: Iterator[pa.RecordBatch], done: PartRun
) -> Iterator[pa.RecordBatch]:
    """Run a group without state: all routes from one input."""
    member, part = item.member, item.part
    assert part is not None

    def counted() -> Iterator[pa.RecordBatch]:
        skips = member.io.skips(part.key)
        for batch in rows:
            mine = without_skipped(batch, "_sequence", skips)
            done.events_in += mine.num_rows
            done.messages += count_messages(mine.column("_sequence").to_numpy())
            done.times.append(batch.column("_timestamp_ms"))
            yield batch

    return StatelessTask(member.io, part.key)(counted())
