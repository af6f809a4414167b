"""The groups of an app in one slot of a worker, on random events and a server of their own.

    random events ──▶ channels of a NATS server that ends with the calibration
                          │
                groups, one after the other, each alone: messages a second, processor time

The slot, its source and its sink are those of a worker, without Spark around them, so the rate is
that of an instance with a backlog.  Time in which threads waited for a core, because of other load
on the machine, is taken out of it.  Each group reads what the groups before it have emitted.
Connectors and triggers do not run: events from outside take their place.

Random events of an app's streams, with values that its text distinguishes.

Strings, and attributes by which the text groups or partitions, have ``keys`` values.  A number that
the text compares with constants lies between twice the least and twice the greatest of them and 0,
so that a condition is true for some events and false for others.  Other numbers lie between 0 and
100.
"""

from __future__ import annotations

import base64
import contextlib
import time
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import psutil
import pyarrow as pa
import pyarrow.ipc

from mesh.errors import MeshError
from mesh.jetstream.channels import ingest_settings, js_streams
from mesh.language.parser import parse_app
from mesh.language.syntax import (
    Binary,
    BinaryOperator,
    Literal,
    SelectClause,
    Unary,
    UnaryOperator,
    ValuePartition,
    Variable,
)
from mesh.model import names
from mesh.model.app import Format, GroupKind
from mesh.model.cluster import Assignment
from mesh.model.cost import GroupCost
from mesh.model.types import AttributeType
from mesh.plan.groups import with_instances
from mesh.plan.rename import renamed
from mesh.spark.instance_io import InstanceIO
from mesh.spark.partitioning import channel_rows
from mesh.spark.shared_query import members
from mesh.spark.shared_query.at_work import AtWork
from mesh.spark.shared_query.members import FAILED
from mesh.spark.shared_query.serving import Serving
from mesh.spark.sink_rows import for_sink
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.connection_options import connection_options
from pyspark_nats.sink import messages_out
from pyspark_nats.sink.publish import RowPublisher
from pyspark_nats.sink.sink_options import sink_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mesh.model.app import AppSpec, Channel, GroupSpec
    from mesh.model.cost import CalibrationTask
    from mesh.model.types import StreamSchema
    from mesh.model.values import JsonObject
    from mesh.spark.shared_query.members import Offsets, Outcome, WorkItem

_COMPUTING: Final = (GroupKind.QUERIES, GroupKind.PARTITIONER)
#: Events that are published together.
_FILL: Final = 5_000
#: Time in which a group must have read its input, seconds.
_GROUP_S: Final = 60.0
#: Messages of each stream whose events are counted.
_LOOKS: Final = 20
#: Time in which a slot reports its counts, seconds.
_REPORT_S: Final = 3.0


def computing(spec: AppSpec) -> tuple[GroupSpec, ...]:
    """The groups with operators, those that write a stream before those that read it."""
    left = [g for g in spec.groups if g.kind in _COMPUTING]
    groups: list[GroupSpec] = []
    while left:
        written = {c.id for g in left for c in g.outputs}
        ready = [g for g in left if not any(i.channel.id in written for i in g.inputs)]
        # In a loop of groups any of them is the first.
        groups += ready or left[:1]
        left = [g for g in left if g not in groups]
    return tuple(groups)


def input_channels(spec: AppSpec) -> tuple[Channel, ...]:
    """The channels that such groups read and none of them writes; those of triggers are left out.

    Raises:
        MeshError: MESH-C170 for a stream of JetStream that is not the mesh's.
    """
    groups = computing(spec)
    triggers = (g for g in spec.groups if g.kind is GroupKind.TRIGGER)
    written = {c.id for g in (*groups, *triggers) for c in g.outputs}
    channels = {i.channel.id: i.channel for g in groups for i in g.inputs}
    foreign = next((c for c in channels.values() if c.foreign), None)
    if foreign is not None:
        raise MeshError(
            "MESH-C170",
            f'app "{spec.name}" can\'t be calibrated',
            detail=f'It reads JetStream stream "{foreign.foreign}", which is not the mesh\'s.',
        )
    return tuple(c for key, c in channels.items() if key not in written)


class _Slot(Serving):
    """A slot that knows when the whole input of its only member is processed."""

    def __init__(self, connection: Any, tell: Callable[..., None], at_work: AtWork) -> None:
        super().__init__(connection, tell, at_work)
        #: By part: its position; when the first work began, and the last one ended.
        self.reached: dict[str, Offsets] = {}
        self.began_s = self.ended_s = 0.0

    def _work(self, item: WorkItem) -> None:
        self.began_s = self.began_s or time.perf_counter()
        super()._work(item)
        if item.part is not None and item.ends is not None:
            self.reached[item.part.key] = item.ends
            self.ended_s = time.perf_counter()

    def until_reported(self) -> None:
        """Wait for the counts, which a slot reports once a second."""
        ends_s = time.monotonic() + _REPORT_S
        while self.has_unreported and time.monotonic() < ends_s:
            self.round(0.1)


@dataclass
class GroupCalibration:
    """Runs the groups of one app on a server that has nothing else to do."""

    task: CalibrationTask
    url: str
    #: Process id of the server.
    server: int
    directory: Path
    _connection: Connection = field(init=False)

    def __post_init__(self) -> None:
        self._nats = {"servers": self.url}
        self._options = connection_options(self._nats)
        self._connection = Connection(self._options)
        self._hints = hints_of(self.task.spec.text)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def costs(self, events: int, run: str) -> list[GroupCost]:
        """Publish ``events`` in all, and run each group over its input.

        Args:
            events: divided among the input channels by their rates.
            run: an app's name that no other call had: connections remember streams.

        Raises:
            MeshError: MESH-C170 for an app that can't be run here.
        """
        spec = renamed(self.task.spec, run)
        self._make(spec)
        try:
            channels = input_channels(spec)
            total = sum(self._rate(c) for c in channels) or 1.0
            for number, channel in enumerate(channels):
                self._fill(channel, round(events * self._rate(channel) / total), number)
            return [self._cost(group, events) for group in computing(spec)]
        finally:
            for name, _ in js_streams(spec):
                self._ask(f"$JS.API.STREAM.DELETE.{name}", {})

    def _rate(self, channel: Channel) -> float:
        return self.task.rates.get(channel.stream.name, 0.0)

    def _make(self, spec: AppSpec) -> None:
        self._ask("$JS.API.INFO", {})
        major, minor, *_ = str(self._connection.info["version"]).split(".")
        for name, subject in js_streams(spec):
            config = {
                "name": name,
                "subjects": [subject, f"{names.marker_subject(name)}.>"],
                "storage": "file",
                "allow_direct": True,
                "allow_atomic": True,
                **ingest_settings(int(major), int(minor)),
            }
            self._ask(f"$JS.API.STREAM.CREATE.{name}", config)

    def _ask(self, call: str, values: JsonObject) -> JsonObject:
        calls = [(call, orjson.dumps(values))]
        replies = self._connection.retry_while_unavailable(
            "asking", lambda: self._connection.requests(calls)
        )
        answer: JsonObject = orjson.loads(replies[0].data)
        return answer

    def _fill(self, channel: Channel, count: int, seed: int) -> None:
        """Publish ``count`` events; their times are the server's."""
        samples = self.task.samples.get(channel.stream.name, ())
        sampler = Sampler(channel.stream, self._hints, self.task.keys, samples, seed=seed)
        sink = sink_options({**self._nats, "epoch": "1", "markerPrefix": names.MARKERS})
        publisher = RowPublisher(self._connection, sink)
        text = self.task.spec.text
        for first in range(0, count, _FILL):
            size = min(_FILL, count - first)
            position = np.arange(first, first + size, dtype=np.int64)
            for out in channel_rows(channel, text, "fill", sampler.rows(size), position, None):
                publisher.add(messages_out.with_header_line(for_sink(out), None))
        publisher.finish()

    def _cost(self, group: GroupSpec, events: int) -> GroupCost:
        """Run one instance of a group over all that its channels hold."""
        group = with_instances(group, 1)
        name = group.instances[0]
        io = InstanceIO(group, Assignment(name, group.app, group.name, 1, "c", "w", 1, 0))
        ends = {
            js: int(self._ask(f"$JS.API.STREAM.INFO.{js}", {})["state"]["last_seq"])
            for i in group.inputs
            for js in (i.channel.js_stream(p) for p in range(i.channel.partitions))
        }
        directory = self.directory / group.app / group.name
        directory.mkdir(parents=True)
        outcomes: list[Outcome] = []
        slot = _Slot(self._options, outcomes.extend, AtWork(directory / "at-work"))
        member = members.member(io, 1, directory, nats=self._nats, starts={}, restored=frozenset())
        server = psutil.Process(self.server)
        try:
            before = time.process_time(), _cpu_s(server), _scheduled(self.server)
            slot.admit(member, [part.key for part in member.parts])
            self._until_read(group.name, slot, ends, outcomes)
            took_s = max(slot.ended_s - slot.began_s, 1e-3) / _stretch(
                before[2], _scheduled(self.server)
            )
            worker_s, nats_s = time.process_time() - before[0], _cpu_s(server) - before[1]
            slot.until_reported()
        finally:
            slot.close()
        messages = sum(one.messages for one in outcomes)
        # A server does the work of one stream in one thread at a time.
        took_s = max(took_s, nats_s)
        read = sum(self._events(i.channel) for i in group.inputs)
        rows = {c.stream.name: self._events(c) for c in group.outputs}
        return GroupCost(
            group.name,
            "calibrated",
            messages / took_s,
            worker_s / max(messages, 1),
            nats_s / max(messages, 1),
            {stream: count / max(read, 1) for stream, count in rows.items()},
            messages=messages / events,
            events=read / events,
        )

    def _events(self, channel: Channel) -> float:
        """Events of a channel; those of an Arrow message are counted in the first messages."""
        messages, seen = 0, []
        for number in range(channel.partitions):
            name, subject = channel.js_stream(number), channel.subject(number)
            request = {"subjects_filter": subject}
            state = self._ask(f"$JS.API.STREAM.INFO.{name}", request)["state"]
            count = sum((state.get("subjects") or {}).values())
            messages += count
            if channel.format is Format.ARROW:
                seen += [size for size in self._sizes(name, subject) if size]
        return messages * (sum(seen) / len(seen) if seen else 1.0)

    def _sizes(self, stream: str, subject: str) -> Iterator[int]:
        """Events of the first messages of a stream."""
        at = 1
        for _ in range(_LOOKS):
            request = {"seq": at, "next_by_subj": subject}
            answer = self._ask(f"$JS.API.STREAM.MSG.GET.{stream}", request)
            if "message" not in answer:
                return
            at = answer["message"]["seq"] + 1
            with pa.ipc.open_stream(base64.b64decode(answer["message"]["data"])) as reader:
                yield sum(batch.num_rows for batch in reader)

    def _until_read(
        self, group: str, slot: _Slot, ends: dict[str, int], outcomes: Sequence[Outcome]
    ) -> None:
        targets = {stream: last for stream, last in ends.items() if last}
        limit_s = time.monotonic() + _GROUP_S
        while not _is_past(slot.reached.values(), targets):
            slot.round(0.05)
            failed = next((one for one in outcomes if one.kind == FAILED), None)
            if failed is not None or time.monotonic() > limit_s:
                reason = f"It took longer than {_GROUP_S:.0f} s." if failed is None else (
                    f"{failed.failure}."
                )  # fmt: skip
                raise MeshError("MESH-C170", f'group "{group}" can\'t be calibrated', detail=reason)


def _is_past(reached: Any, targets: dict[str, int]) -> bool:
    at: dict[str, int] = {}
    for ends in reached:
        for stream, end in ends.items():
            at[stream] = max(at.get(stream, 0), end["sequence"])
    return all(at.get(stream, 0) >= last for stream, last in targets.items())


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@dataclass(frozen=True, slots=True)
class _Scheduled:
    """Times of threads so far, seconds."""

    #: In which those of this process and of the server ran, and waited for a core.
    ran_s: float
    waited_s: float
    #: In which all processes of the machine ran.
    busy_s: float


def _scheduled(server: int) -> _Scheduled:
    ran = waited = 0
    for process in ("self", str(server)):
        for path in Path("/proc", process, "task").glob("*/schedstat"):
            # A thread may end meanwhile.
            with contextlib.suppress(OSError):
                values = path.read_text().split()
                ran, waited = ran + int(values[0]), waited + int(values[1])
    cpu = psutil.cpu_times()
    return _Scheduled(ran / 1e9, waited / 1e9, cpu.user + cpu.system + cpu.nice)


def _stretch(before: _Scheduled, after: _Scheduled) -> float:
    """The factor by which other load has made work longer; 1 where unknown."""
    ran_s, waited_s = after.ran_s - before.ran_s, after.waited_s - before.waited_s
    busy_s = after.busy_s - before.busy_s
    if ran_s <= 0 or busy_s <= ran_s:
        return 1.0
    # A thread also waits for the others of its own group, as it would on an idle machine.
    return 1.0 + waited_s / ran_s * (busy_s - ran_s) / busy_s


_COMPARES: Final = frozenset(
    {
        BinaryOperator.EQUAL,
        BinaryOperator.NOT_EQUAL,
        BinaryOperator.LESS,
        BinaryOperator.LESS_OR_EQUAL,
        BinaryOperator.GREATER,
        BinaryOperator.GREATER_OR_EQUAL,
    }
)
_USUAL_MAX: Final = 100.0
_WHOLE: Final = frozenset({AttributeType.INT, AttributeType.LONG})


@dataclass(frozen=True, slots=True)
class Hints:
    """Facts of a text that decide the values of random events."""

    #: Names by which events are grouped or partitioned.
    keys: frozenset[str]
    #: By attribute: the least and the greatest constant with which it is compared, and 0.
    compared: Mapping[str, tuple[float, float]]
    #: By attribute: the strings with which it is compared.
    texts: Mapping[str, tuple[str, ...]]
    #: The longest time that is named, seconds; 0 without one.
    longest_s: float


def hints_of(text: str) -> Hints:
    """The facts of an app's text, or of a group's."""
    keys: set[str] = set()
    compared: dict[str, tuple[float, float]] = {}
    texts: dict[str, list[str]] = {}
    longest_s = 0.0
    for node in nodes(parse_app(text)):
        match node:
            case SelectClause():
                keys |= {one.name for one in node.group_by}
            case ValuePartition(expression=Variable(name=name)):
                keys.add(name)
            case Literal(value=value, is_time=True):
                longest_s = max(longest_s, float(value) / 1000)
            case Binary(operator=operator) if operator in _COMPARES:
                for name, value in _constants(node):
                    if isinstance(value, str):
                        texts.setdefault(name, []).append(value)
                    else:
                        low, high = compared.get(name, (0.0, 0.0))
                        compared[name] = min(low, value), max(high, value)
            case _:
                pass
    return Hints(
        frozenset(keys), compared, {k: tuple(dict.fromkeys(v)) for k, v in texts.items()}, longest_s
    )


def nodes(tree: object) -> Iterator[Any]:
    """A syntax tree's nodes, the root first."""
    if isinstance(tree, tuple):
        for one in tree:
            yield from nodes(one)
    elif is_dataclass(tree):
        yield tree
        for one in fields(tree):
            yield from nodes(getattr(tree, one.name))


def _constants(node: Binary) -> Iterator[tuple[str, str | float]]:
    """The attribute and the constant of a comparison of these."""
    for one, other in ((node.left, node.right), (node.right, node.left)):
        sign = 1.0
        if isinstance(other, Unary) and other.operator is UnaryOperator.NEGATE:
            sign, other = -1.0, other.operand
        if isinstance(one, Variable) and isinstance(other, Literal):
            value = other.value
            yield one.name, value if isinstance(value, str) else sign * float(value)


class Sampler:
    """Draws the events of one stream.

    Args:
        schema: of the stream.
        hints: facts of the app's text.
        keys: number of values of a key.
        samples: events as JSON objects; rows are drawn from them if there are any.
        seed: of the random numbers.

    Raises:
        MeshError: MESH-U161 for a given event that does not fit the stream.
    """

    def __init__(
        self,
        schema: StreamSchema,
        hints: Hints,
        keys: int,
        samples: Sequence[str] = (),
        seed: int = 1,
    ) -> None:
        self._schema, self._hints, self._keys = schema, hints, max(1, keys)
        self._random = np.random.default_rng(seed)
        self._samples = _rows(schema, samples) if samples else None

    def rows(self, count: int) -> pa.RecordBatch:
        """The next ``count`` events."""
        if self._samples is not None:
            chosen: Any = pa.array(self._random.integers(0, self._samples.num_rows, count))
            return self._samples.take(chosen)
        columns = [self._column(a.name, a.type, count) for a in self._schema.attributes]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema.arrow)

    def _column(self, name: str, kind: AttributeType, count: int) -> Any:
        column_type = self._schema.arrow.field(name).type
        if kind is AttributeType.BOOL:
            return pa.array(self._random.integers(0, 2, count) == 1)
        if kind is AttributeType.STRING and name in self._hints.texts:
            # One more, which equals none of them.
            values = (*self._hints.texts[name], "other")
            return pa.array(values, column_type).take(self._drawn(len(values), count))
        if kind is AttributeType.STRING:
            numbers = self._random.integers(0, self._keys, count).astype(str)
            return pa.array(np.char.add("k", numbers), column_type)
        if kind is AttributeType.OBJECT:
            return pa.nulls(count, column_type)
        if name in self._hints.keys:
            return pa.array(self._random.integers(0, self._keys, count)).cast(column_type)
        low, high = self._hints.compared.get(name, (0.0, 0.0))
        low, high = (2 * low, 2 * high) if low < high else (0.0, _USUAL_MAX)
        if kind in _WHOLE:
            drawn = self._random.integers(round(low), round(high) + 1, count)
            return pa.array(drawn).cast(column_type)
        return pa.array(self._random.uniform(low, high, count)).cast(column_type)

    def _drawn(self, of: int, count: int) -> object:
        return pa.array(self._random.integers(0, of, count))


def _rows(schema: StreamSchema, samples: Sequence[str]) -> pa.RecordBatch:
    values = [orjson.loads(one) for one in samples]
    try:
        return pa.RecordBatch.from_pylist(values, schema.arrow)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise MeshError(
            "MESH-U161",
            f'an event does not fit stream "{schema.name}"',
            detail=f"{error}.",
        ) from error
