"""Host of stateful operators, between the source and the sink.

It handles one partition's part of a batch: loads the state at the start, decodes, runs the
operators, encodes their output, and keeps the state at the end.

Its input is the source's raw rows with range markers.  For each input stream it has a row with the
start of the range, then messages, then its end (sequence and the broker's time).

The file is longer than 400 lines because a run is one sequence of steps over one state.

On-demand changes of tables among the messages of an instance's input, as input of its operators.

A manager publishes them beside the events of one of the inputs (``names.change_subject``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa

from mesh.errors import MeshError
from mesh.model import names
from mesh.model.app import Format
from mesh.operators.dataflow.merge import CHANGE_SCHEMA, CHANGES
from mesh.operators.executor import Executor, InputRun, OutputRun
from mesh.operators.failures import FAILED
from mesh.plan.bind.apps import bind_group
from mesh.spark import sink_rows
from mesh.spark.instance_io import InputPosition, InstanceIO, LocalState, decoder_of
from mesh.spark.live_partition import IdleTime, StreamClock, executor_of
from mesh.spark.live_partition import LivePartition as LivePartition
from mesh.spark.part_states import state_of
from mesh.spark.partitioning import channel_rows
from mesh.spark.store_output import StoreOutput
from mesh.spark.task_states import RemoteState, TaskStates
from mesh.store.sources import shard
from pyspark_nats import decode
from pyspark_nats.arrow import FEW, kernels
from pyspark_nats.decode.result import USUAL, MessageLimits
from pyspark_nats.few_rows import as_batch
from pyspark_nats.gc_freeze import freeze_imported
from pyspark_nats.source.rows import MessageRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy.typing as npt

    from mesh.model.app import Channel, GroupInput
    from pyspark_nats.source.ranges import StreamRange


#: Messages as rows of the source.
Rows = pa.RecordBatch | MessageRows

#: Kinds of rows of the source.
MESSAGE, RANGE_START, RANGE_END = 0, 1, 2


@dataclass(frozen=True, slots=True)
class PartitionTask:
    """Function that ``mapInArrow`` calls; pickled to Spark's Python workers."""

    io: InstanceIO
    #: Directory of the instance's states, with a subdirectory for each partition.
    directory: str
    #: Restored partitions, whose state must exist.  The others start empty.
    restored: frozenset[int]
    #: Limits of one message.
    limits: MessageLimits = field(default=USUAL, kw_only=True)
    #: The broker's time, by a JetStream stream; None: markers in databases are not compared.
    broker_ms: Callable[[str], int] | None = field(default=None, kw_only=True)
    #: Where the states are if the tasks have no directory in common.
    states: TaskStates | None = field(default=None, kw_only=True)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run one partition's part of a micro-batch."""
        freeze_imported()
        yield from self.work(PartitionRun(self), batches)

    def work(
        self, run: PartitionRun, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """The same in a run that the caller looks at."""
        for batch in batches:
            yield from run.take(batch)
        yield from run.finish()

    def end_batch(self, number: int, position: InputPosition, partition: LivePartition) -> None:
        """Store the state at the end of a batch, and write the time of its next timer."""
        if self.states is not None:
            self.store(number, position, partition)
            return
        drop_ended_states()
        self.store(number, position, partition)
        wakeup = Path(self.directory) / "wakeup" / str(number)
        due = partition.wakeup_ms()
        if due is not None:
            # At one instant, timers precede events: the instant must be over to be complete.
            wakeup.parent.mkdir(parents=True, exist_ok=True)
            temporary = wakeup.with_name(f".{wakeup.name}")
            temporary.write_text(str(due))
            temporary.replace(wakeup)
        else:
            wakeup.unlink(missing_ok=True)

    def store(self, number: int, position: InputPosition, partition: LivePartition) -> None:
        """Store the state of a partition, which is at ``position``, in its directory."""
        part_states = self.state(number)
        state = partition.executor.snapshot()
        if isinstance(part_states, RemoteState):
            due_ms = partition.wakeup_ms()
            part_states.save(position, partition.stored_clocks(), state, partition.ahead, due_ms)
        else:
            part_states.save(position, partition.stored_clocks(), state, partition.ahead)

    def is_live(self, number: int, position: InputPosition) -> bool:
        """Whether the state that this process has at ``position`` is the one that others find."""
        return self.states is None or self.states.of(self.io.part(number)).is_live(position)

    def state(self, number: int) -> LocalState | RemoteState:
        """The stored states of a partition."""
        return state_of(self.io, Path(self.directory), number, self.states)


class PartitionRun:
    """One task: from the range starts to the range ends."""

    def __init__(self, task: PartitionTask) -> None:
        self.task = task
        self._io = task.io
        #: ``{"sequence", "time_ms"}`` of both ends of the range, by JetStream stream.
        self.starts: dict[str, dict[str, int]] = {}
        self.ends: dict[str, dict[str, int]] = {}
        #: Number of events in the messages so far, those that can't be read among them.
        self.events = 0
        self._partition: LivePartition | None = None
        self._number = 0
        self._preset_number: int | None = None
        self._inputs: dict[str, GroupInput] = {}
        #: Whether times of clients let time pass in this run.
        self._has_jumped = False

    def take(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Process rows of the source, with range markers, in their order; return output rows."""
        kinds = batch.column("kind").to_numpy(zero_copy_only=False)
        edges = np.flatnonzero(kinds != MESSAGE)
        for row in edges.tolist():
            place = self.starts if kinds[row] == RANGE_START else self.ends
            place[batch.column("stream")[row].as_py()] = {
                "sequence": batch.column("sequence")[row].as_py(),
                "time_ms": batch.column("time_ms")[row].as_py(),
            }
        yield from self.process(batch.filter(pa.array(kinds == MESSAGE)) if len(edges) else batch)

    def begin(self, number: int, ranges: Iterable[StreamRange]) -> None:
        """Set the partition and its ranges, which no markers are among the rows for."""
        self._preset_number = number
        for one in ranges:
            self.starts[one.stream] = {"sequence": one.start, "time_ms": one.start_ms}
            self.ends[one.stream] = {"sequence": one.end, "time_ms": one.end_ms}

    def process(self, messages: Rows) -> Iterator[pa.RecordBatch]:
        """Process messages after ``starts``, rows without range markers; return output rows."""
        if messages.num_rows:
            if self._partition is None:
                self._partition = self._load()
            yield from self._process(messages)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Advance time to the end of the ranges, and store the state for the next batch."""
        if not self.starts:
            return
        partition = self._partition or self._load()
        for js_stream, end in self.ends.items():
            name = self._inputs[js_stream].channel.stream.name
            partition.clocks[name].broker_reached(end["time_ms"])
            yield from self._pass_idle(end["time_ms"])
        if not self._is_over(partition):
            yield from self._run([])
        if partition.stores is not None:
            # All input of the run, and all that time has brought, is later.
            partition.stores.commit(min(start["time_ms"] for start in self.starts.values()))
            for table, run in partition.stores.refused():
                yield sink_rows.refused_rows(self._io, self._number, table, run)
        self._keep(partition)

    def next_timer_ms(self) -> int | None:
        """The earliest time at which time alone changes anything, before any message; or None."""
        if self._partition is None:
            self._partition = self._load()
        return self._partition.executor.next_time()

    def _load(self) -> LivePartition:
        self._number = self._of_starts() if self._preset_number is None else self._preset_number
        self._inputs = self._io.input_streams(self._number)
        position = InputPosition.of(self.starts, self.starts)
        live = LIVE_STATES.pop(self._key, None)
        if live is not None and live[0] == position and self.task.is_live(self._number, position):
            self._partition = live[1]
            return live[1]

        partition = LivePartition(
            self._executor(),
            {i.channel.stream.name: StreamClock() for i in self._inputs.values()},
            idle=IdleTime.of(bind_group(self._io.group)),
        )
        partition.stores = StoreOutput.of(
            partition.executor, self._io.assignment.epoch, self._io.group.app
        )
        if partition.stores is not None and self.task.broker_ms is not None:
            partition.stores.claimed_ms = self.task.broker_ms(next(iter(self.starts)))
        local = self.task.state(self._number)
        manifest = local.manifest(position) or local.restored(position)
        if manifest is not None:
            partition.ahead = manifest.ahead
            partition.executor.restore(local.load(manifest))
            partition.restore_clocks(manifest.clocks)
            if partition.stores is not None:
                partition.stores.continue_from(partition.executor)
        elif self._number in self.task.restored or not local.is_empty():
            raise MeshError(
                "MESH-S100",
                f"state of instance {self._io.assignment.instance} at this position is missing",
                detail=f"Partition {self._number}, {position.offsets}.",
                hint="The instance restarts from its last shared snapshot by itself.",
            )
        elif partition.stores is not None:
            partition.stores.begin(partition.executor)
        if partition.stores is not None:
            partition.stores.recall(partition.executor)
        self._partition = partition
        return partition

    def _of_starts(self) -> int:
        """The partition that reads the streams of the range markers."""
        streams = set(self.starts)
        return next(p for p in self._io.partitions if set(self._io.input_streams(p)) == streams)

    def _executor(self) -> Executor:
        """The operators of the partition, without state."""
        return executor_of(self._io, self._number, shard())

    def _process(self, messages: Rows) -> Iterator[pa.RecordBatch]:
        if isinstance(messages, MessageRows):
            yield from self._process_part(messages.messages.stream, messages)
            return
        # The source reads stream by stream, so runs of one stream are long.
        bounds = [0, *_changes(messages.column("stream")), messages.num_rows]
        for start, stop in pairwise(bounds):
            js_stream = messages.column("stream")[start].as_py()
            yield from self._process_part(js_stream, messages.slice(start, stop - start))

    def _process_part(self, js_stream: str, part: Rows) -> Iterator[pa.RecordBatch]:
        """Process messages of one stream."""
        group_input = self._inputs[js_stream]
        assert self._partition is not None
        taken = self._partition.ahead.get(js_stream)
        if taken is not None:
            part = part.filter(kernels.greater(part.column("sequence"), taken))
        part = without_skipped(part, "sequence", self._io.skips(js_stream))
        if refused := self._io.refusals(js_stream):
            sequences = part.column("sequence").to_pylist()
            errors = [(n, 0, refused[s]) for n, s in enumerate(sequences) if s in refused]
            # By each group that fails at it: another one may process it.
            name, where = group_input.channel.stream.name, f"p{self._number}"
            yield sink_rows.refused_messages(self._io, name, part, errors, where)
            part = without_skipped(part, "sequence", ((one - 1, one) for one in refused))
        few = part.messages.few_subjects if isinstance(part, MessageRows) else None
        if few is not None and not group_input.channel.foreign:
            subject = group_input.channel.subject(self._number)
            if all(one == subject for one in few):
                yield from self._process_stream(part, group_input)
                return
        is_event = self._of_channel(part.column("subject"), group_input.channel)
        if is_event.all():
            yield from self._process_stream(part, group_input)
            return
        whole = part.whole() if isinstance(part, MessageRows) else part
        subject = names.change_subject(js_stream, self._io.group.name)
        for events, change in split(whole, is_event, subject):
            yield from self._process_stream(events, group_input)
            if change is not None:
                yield from self._change(change, group_input)

    def _change(self, message: pa.RecordBatch, group_input: GroupInput) -> Iterator[pa.RecordBatch]:
        assert self._partition is not None
        run = change_run(
            message,
            self._partition.clocks[group_input.channel.stream.name],
            is_alone=len(self._inputs) == 1,
            plays_back=self._partition.executor.plays_back,
        )
        if run is not None:
            yield from self._run([run])

    def _of_channel(self, subjects: Any, channel: Channel) -> npt.NDArray[np.bool_]:
        """Mask of the messages that are events of ``channel``; its stream also holds markers."""
        if channel.foreign:
            mask = kernels.match_substring_regex(subjects, _subject_pattern(channel.reads))
        else:
            mask = kernels.equal(subjects, channel.subject(self._number))
        return np.asarray(mask.to_numpy(zero_copy_only=False), bool)

    def _process_stream(self, messages: Rows, group_input: GroupInput) -> Iterator[pa.RecordBatch]:
        while messages.num_rows:
            taken, rows = self._process_some(messages, group_input)
            yield from rows
            if taken == messages.num_rows:
                return
            messages = messages.slice(taken)

    def _process_some(
        self, messages: Rows, group_input: GroupInput
    ) -> tuple[int, Iterator[pa.RecordBatch]]:
        """Process as many messages as may be decoded together: their number, and output rows."""
        assert self._partition is not None
        if isinstance(messages, MessageRows):
            few = messages.decode_few(group_input.channel.stream.arrow, self.task.limits)
            if few is not None:
                if not self._partition.executor.takes_few:
                    few = replace(few, rows=as_batch(few.rows))
                return few.taken, self._process_decoded(messages, few, group_input)
        channel = group_input.channel
        decoded = decoder_of(channel)(
            messages.column("data"),
            messages.column("content_type"),
            channel.stream.arrow,
            limits=self.task.limits,
        )
        decoded = decode.with_event_times(
            decoded,
            messages.column("event_time_ms"),
            lambda: messages.column("time_ms").to_numpy(),
            self.task.limits,
        )
        return decoded.taken, self._process_decoded(messages, decoded, group_input)

    def _process_decoded(
        self, messages: Rows, decoded: decode.DecodeResult, group_input: GroupInput
    ) -> Iterator[pa.RecordBatch]:
        assert self._partition is not None
        schema = group_input.channel.stream
        self.events += decoded.rows.num_rows + len(decoded.errors)
        if decoded.errors and group_input.records_errors:
            # Each partition has its own message numbers, so each has its own producer.
            part = f"p{self._number}"
            yield sink_rows.error_rows(self._io, schema.name, messages, decoded.errors, part)
        if not decoded.rows.num_rows:
            return
        sequence = numbers_of(messages, "sequence")[decoded.message]
        broker_ms = numbers_of(messages, "time_ms")[decoded.message]
        event_ms = decoded.event_time_ms
        time_ms = broker_ms
        has_times = event_ms.null_count < len(event_ms)
        if has_times:
            time_ms = kernels.coalesce(event_ms, pa.array(broker_ms)).to_numpy(zero_copy_only=False)
            self._has_jumped = True
        self._has_jumped |= any(clock.by_events for clock in self._partition.clocks.values())
        self._partition.clocks[schema.name].take(time_ms, has_times and event_ms[-1].is_valid)
        # Events that a client sends as one message are one chunk, like an array in the reference
        # engine. Messages of the runtime's own sinks have no such meaning.
        chunk = sequence if group_input.channel.format is Format.JSON else None
        run = InputRun(schema.name, sequence, time_ms, decoded.rows, chunk)
        if self._partition.idle is None:
            yield from self._run([run])
            return
        for start, stop in pairwise([*self._partition.idle.pauses(broker_ms), len(sequence)]):
            yield from self._pass_idle(int(broker_ms[start]))
            yield from self._run([run.slice(start, stop)])
            self._partition.idle.since_ms = int(broker_ms[stop - 1])

    def _pass_idle(self, broker_ms: int) -> Iterator[pa.RecordBatch]:
        """Advance the clock of playback for the time without events."""
        assert self._partition is not None
        idle, executor = self._partition.idle, self._partition.executor
        passed_ms = 0 if idle is None else idle.passed(broker_ms)
        if passed_ms:
            runs = executor.step(executor.now_ms + passed_ms)
            yield from self._emit(self._taken(runs), by_events=True)

    def _is_over(self, partition: LivePartition) -> bool:
        """Whether the last events have brought the time of the range's end, as a rule they do."""
        by_events = self._has_jumped or any(c.by_events for c in partition.clocks.values())
        is_plain = partition.stores is None and not by_events
        return is_plain and partition.executor.is_settled(partition.times())

    def _run(self, inputs: list[InputRun]) -> Iterator[pa.RecordBatch]:
        assert self._partition is not None
        yield from self._emit(*self._advance(self._partition, inputs))

    def _emit(self, runs: list[OutputRun], by_events: bool) -> Iterator[pa.RecordBatch]:
        for run in runs:
            if run.stream == FAILED:
                yield sink_rows.failed_rows(self._io, self._number, run, by_events)
                continue
            channels = self._io.outputs(run.stream)
            assert channels, "the executor puts out only streams that leave the group"
            for channel in channels:
                yield from channel_rows(
                    channel,
                    self._io.group.text,
                    self._io.producer(str(self._number)),
                    run.rows,
                    run.position,
                    pa.array(run.time_ms) if by_events else None,
                )

    def _advance(
        self, partition: LivePartition, inputs: list[InputRun]
    ) -> tuple[list[OutputRun], bool]:
        """Drive the operators; their output, and whether its rows have times of their own."""
        clocks = partition.clocks.values()
        by_events = partition.executor.plays_back or all(
            clock.by_events for clock in clocks if clock.is_started
        )
        is_by_events = self._has_jumped or any(clock.by_events for clock in clocks)
        is_by_events |= partition.executor.plays_back
        if partition.stores is not None:
            partition.stores.prepare()
        runs = partition.executor.run(inputs, partition.times(), is_by_events=is_by_events)
        if partition.stores is not None:
            partition.stores.record(partition.executor)
        return self._taken(runs), by_events

    def _taken(self, runs: list[OutputRun]) -> list[OutputRun]:
        """The output that leaves; rows for databases are kept until they are written."""
        assert self._partition is not None
        stores = self._partition.stores
        return runs if stores is None else stores.take(runs)

    def _keep(self, partition: LivePartition) -> None:
        position = InputPosition.of(self.ends, self.ends)
        partition.ahead = {
            stream: sequence
            for stream, sequence in partition.ahead.items()
            if sequence > self.ends[stream]["sequence"]
        }
        self.task.end_batch(self._number, position, partition)
        LIVE_STATES[self._key] = (position, partition)

    @property
    def _key(self) -> tuple[str, str, int]:
        return (self.task.directory, self._io.assignment.instance, self._number)


def without_skipped(messages: Any, column: str, skips: Iterable[tuple[int, int]]) -> Any:
    """``messages``, ``Rows``, without those whose sequence is in a skipped range (after, to]."""
    for after, to in skips:
        sequence = messages.column(column)
        mask = kernels.or_(kernels.less_equal(sequence, after), kernels.greater(sequence, to))
        messages = messages.filter(mask)
    return messages


def numbers_of(messages: Rows, name: str) -> npt.NDArray[np.int64]:
    """A column of numbers without nulls."""
    if isinstance(messages, MessageRows):
        return messages.numbers(name)
    return messages.column(name).to_numpy()


def count_messages(sequences: npt.NDArray[np.int64]) -> int:
    """The number of messages of events, by their sequences, which grow."""
    if len(sequences) <= 1:
        return len(sequences)
    return int(np.count_nonzero(np.diff(sequences))) + 1


def _changes(names: Any) -> list[int]:
    """The rows whose name is not that of the row before."""
    if len(names) <= FEW:
        some = names.to_pylist()
        return [row for row in range(1, len(some)) if some[row] != some[row - 1]]
    codes = names.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return (np.flatnonzero(np.diff(codes)) + 1).tolist()


@lru_cache(maxsize=64)
def _subject_pattern(subject: str) -> str:
    """A regular expression for a subject with wildcards."""
    tokens = {"*": "[^.]+", ">": ".+"}
    return "^" + r"\.".join(tokens.get(t, re.escape(t)) for t in subject.split(".")) + "$"


#: States after the last batches in this process, so that the next batch need not load them.
LIVE_STATES: dict[tuple[str, str, int], tuple[InputPosition, LivePartition]] = {}


def drop_ended_states() -> None:
    """Drop the states of ended instances, whose directories are gone; they may be large."""
    directories = {key[0] for key in LIVE_STATES}
    ended = {directory for directory in directories if not Path(directory).exists()}
    for key in [key for key in LIVE_STATES if key[0] in ended]:
        LIVE_STATES.pop(key)[1].close()


def drop_state(directory: str, instance: str, number: int) -> None:
    """Drop a state that this process does not need any more."""
    live = LIVE_STATES.pop((directory, instance, number), None)
    if live is not None:
        live[1].close()


_EARLY: Final = "no event has come yet that says what time it is"


def split(
    messages: pa.RecordBatch, is_event: npt.NDArray[np.bool_], subject: str
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
    """The events before each change, which are its messages of ``subject``, and the change.

    The last are the events after all changes, with None.  Other messages are markers.
    """
    mask = kernels.equal(messages.column("subject"), subject).to_numpy(zero_copy_only=False)
    at = np.flatnonzero(mask).tolist()
    for start, stop in pairwise([-1, *at, messages.num_rows]):
        part = slice(start + 1, stop)
        events = messages.slice(start + 1, stop - start - 1).filter(pa.array(is_event[part]))
        yield events, messages.slice(stop, 1) if stop < messages.num_rows else None


def change_run(
    message: pa.RecordBatch, clock: StreamClock, *, is_alone: bool, plays_back: bool
) -> InputRun | None:
    """A change as input of the operators; None for a message that is none.

    Args:
        message: one row of the source.
        clock: of the stream beside whose events it is.  A change is as late as the last of these
            if they have times of their own, and has the broker's time otherwise.
        is_alone: whether the group reads this stream only.  Otherwise its clock starts, as with an
            event, for a change waits until all streams are past its time.
        plays_back: whether time is that of the events, which a change must not start.
    """
    try:
        values = orjson.loads(message.column("data")[0].as_py())
        id_, query = str(values["id"]), str(values["query"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    time_ms = message.column("time_ms").to_numpy()
    refusal = None
    if clock.by_events:
        time_ms = np.array([clock.now_ms])
    elif not is_alone and (clock.is_started or not plays_back):
        clock.take(time_ms, False)
    elif not is_alone:
        time_ms, refusal = np.array([0]), _EARLY
    row = pa.RecordBatch.from_pylist(
        [{"id": id_, "query": query, "refusal": refusal}], CHANGE_SCHEMA
    )
    return InputRun(CHANGES, message.column("sequence").to_numpy(), time_ms, row)
