"""A fuzzer of the whole path: from a publisher's octets to the events that an app emits.

``python -m tests.fuzz.whole_path --minutes 10`` (``make fuzz`` plays it after the decoder's) plays
random messages, hostile and good, through the tasks of a shared query and a real server.
``tests/spark/test_random_messages.py`` plays a few of them with the tests.

The promises, for groups with and without state and behind a partitioner: no instance fails; each
event that can be read has its effect once, in order, whatever its neighbours are; each other one is
recorded once.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import logging
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, seed, settings

from mesh.jetstream import server
from mesh.jetstream.channels import js_streams
from mesh.model import error_entry, names
from mesh.operators.executor import Executor, InputRun
from mesh.operators.failures import FAILED as FAILED_EVENTS
from mesh.plan.bind.apps import bind_group
from mesh.spark.live_partition import StreamClock
from mesh.spark.shared_query.members import FAILED
from pyspark_nats import decode
from pyspark_nats.arrow import kernels
from pyspark_nats.decode import MessageLimits
from pyspark_nats.encode import to_json
from pyspark_nats.protocol import connection, frames, jetstream
from pyspark_nats.source import direct_get, rows
from tests.fuzz.publishers import BATCHES
from tests.support.shared_query import Hand, Instances

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mesh.model.app import AppSpec, GroupSpec
    from mesh.spark.shared_query.members import Outcome
    from tests.fuzz.publishers import Sent

APP: Final = """@App:name('{name}')
define stream Numbers (id long, n int, x double, s string, b bool);
@dist(execGroup='flat') from Numbers select id, n, x, s, b insert into Flat;
@dist(execGroup='flat') from Numbers[n > 0] select id, n * 2 as twice, s insert into Twice;
@dist(execGroup='words')
from Numbers select id, str:concat(s, s) as ss, str:upper(s) as u, str:length(s) as l,
    convert(x, 'string') as t, convert(s, 'int') as p, coalesce(s, 'none') as c,
    ifThenElse(b, n, 0) as i, math:floor(x) as f, n / 7 as d, x % 3.0 as r, cast(n, 'long') as g
insert into Words;
@dist(execGroup='words')
from Numbers[x > 0.5 or s is null or str:contains(s, '0')] select id, str:reverse(s) as s,
    maximum(x, 1.0) as m, not b as b insert into Reversed;
@dist(execGroup='codes') from Numbers select id, str:charAt(s, 1) as a, math:parseInt(s) as n
insert into Codes;
@dist(execGroup='whole')
from Numbers#window.length(3) select id, count() as c, max(n) as m insert into Lengths;
@dist(execGroup='whole')
from every e1=Numbers[n > 0] -> e2=Numbers[n < e1.n] select e1.id as a, e2.id as z
insert into Chains;
@dist(execGroup='times')
from Numbers#window.timeBatch(1 hour) select id, count() as c insert into Hours;
@dist(execGroup='times')
from Numbers#window.time(1 hour) select id insert expired events into Late;
@dist(execGroup='keyed', partitions='2')
partition with (s of Numbers) begin
  from Numbers select s, id, count() as c insert into Keys;
end;
"""
#: Streams whose rows are in order by their first value only.
BY_KEY: Final = frozenset({"Keys"})
LIMITS: Final = MessageLimits(events_max=2000, bytes_max=100_000, event_time_ahead_ms=86_400_000)
#: Time without more output after which no more is awaited, seconds; on a busy machine each row
#: takes its time.
_OUTPUT_S: Final = 20.0
#: The last event's time after the present one, ms: all windows have ended then.
_END_MS: Final = 20 * 3_600_000
#: Numbers the apps of this process.
_apps: Final = itertools.count(1)

# --- the promises


def check(hand: Hand, batches: Sequence[Sequence[Sent]]) -> None:
    """Play messages through a new app, and hold it to the promises."""
    app = Instances(hand, f"F{next(_apps)}", message=LIMITS, app=APP)
    hand.make(app.spec)
    for one in app.by_group.values():
        one.start()
    try:
        _step(hand, 0.0)
        for batch in batches:
            _publish(hand, app.spec.name, batch)
            _step(hand, 0.0)
        _publish_last(hand, app.spec.name)
        _compare(hand, app.spec)
    finally:
        for one in app.by_group.values():
            one.stop()
        hand.told.clear()
        hand.step(0.0)
        for stream, _ in js_streams(app.spec):
            hand.ask((f"$JS.API.STREAM.DELETE.{stream}", b""))


def _step(hand: Hand, wait_s: float) -> None:
    failed: list[str] = []
    tell = hand.serving.tell

    def noted(outcomes: tuple[Outcome, ...]) -> None:
        failed.extend(f"{one.instance}: {one.failure}" for one in outcomes if one.kind == FAILED)
        tell(outcomes)

    hand.serving.tell = noted
    try:
        hand.step(wait_s)
    finally:
        hand.serving.tell = tell
    assert not failed, failed


def _publish(hand: Hand, app: str, batch: Sequence[Sent]) -> None:
    """Publish messages; the server may refuse any of them, or not answer."""
    subject = names.subject(app, "Numbers")
    whole = [frames.publish(subject, one.message.payload, header=one.header) for one in batch]
    hand.broker.retry_while_unavailable("publishing", lambda: hand.broker.send(b"".join(whole)))


def _publish_last(hand: Hand, app: str) -> None:
    """Publish an event after which all windows have ended; the server stores it."""
    event = json.dumps({"id": 0, "n": 0, "x": 0.0, "s": "end", "b": True}).encode()
    time_ms = time.time_ns() // 1_000_000 + _END_MS
    header = frames.header_block({names.EVENT_TIME_HEADER: str(time_ms)})

    def send() -> None:
        (reply,) = hand.broker.reply_subjects(1)
        subject = names.subject(app, "Numbers")
        hand.broker.send(frames.publish(subject, event, reply=reply, header=header))
        assert "seq" in hand.broker.replies([reply])[0].json()

    hand.broker.retry_while_unavailable("publishing", send)


def _compare(hand: Hand, spec: AppSpec) -> None:
    """Compare the output, and the entries of the error stream, with what they should be."""
    read, failed = _readable(_stored(hand, spec.name), _schema(spec))
    wanted: dict[str, list[Any]] = defaultdict(list)
    for group in spec.groups:
        for stream, made in _expected(group, read).items():
            wanted[stream] += made
    reasons = [reason for _, _, reason in failed] + wanted.pop(FAILED_EVENTS)
    count, deadline_s = -1, 0.0
    while True:
        found = {stream: _emitted(hand, spec.name, stream) for stream in wanted}
        told = _recorded(hand, spec.name)
        are_all = all(len(found[stream]) >= len(made) for stream, made in wanted.items())
        before, count = count, len(told) + sum(map(len, found.values()))
        if count > before:
            deadline_s = time.monotonic() + _OUTPUT_S
        if (are_all and len(told) >= len(reasons)) or time.monotonic() > deadline_s:
            break
        _step(hand, 0.05)
    # Of an event that a query failed on, only the reason is compared.
    assert Counter(failed) <= Counter(told)
    assert Counter(reason for _, _, reason in told) == Counter(reasons)
    for stream, made in wanted.items():
        if stream in BY_KEY:
            assert _by_key(found[stream]) == _by_key(made), stream
        else:
            assert found[stream] == made, stream


def _stored(hand: Hand, app: str) -> pa.RecordBatch:
    """All messages of the input, read one by one: as rows with range markers are."""
    stream = names.js_stream(app, "Numbers")
    broker = hand.broker

    def read() -> list[pa.RecordBatch]:
        (info,) = jetstream.stream_infos(broker, [stream]).values()
        (found,) = direct_get.read(broker, stream, [(info.first, info.last)])
        # The server's own word, which no header of a message can forge.
        for number, sequence in enumerate(found.sequence.tolist(), 1):
            truth = jetstream.message(broker, stream, sequence)
            assert truth is not None
            one = found.slice(number - 1, number)
            assert (truth.sequence, truth.subject) == (number, one.subject[0].as_py())
            assert (truth.time_ns, truth.data) == (one.time_ns[0], one.data[0].as_py())
        return [rows.marked(found, names.EVENT_TIME_HEADER)]

    (made,) = broker.retry_while_unavailable("reading", read)
    return made


def _schema(spec: AppSpec) -> pa.Schema:
    return next(c.stream.arrow for c in spec.channels if c.stream.name == "Numbers")


@dataclass(frozen=True)
class _Events:
    """The readable events of one message."""

    sequence: int
    time_ms: Any
    is_own: bool
    rows: pa.RecordBatch


def _readable(
    stored: pa.RecordBatch, schema: pa.Schema
) -> tuple[list[_Events], list[tuple[int, int, str]]]:
    """The readable events, each message read alone; sequence, index and reason of the others."""
    read: list[_Events] = []
    failed: list[tuple[int, int, str]] = []
    for number in range(stored.num_rows):
        one = stored.slice(number, 1)
        sequence = one.column("sequence")[0].as_py()
        broker_ms = one.column("time_ms").to_numpy()
        decoded = decode.decode_messages(
            one.column("data"), one.column("content_type"), schema, limits=LIMITS
        )
        own_ms = one.column("event_time_ms")
        decoded = decode.with_event_times(decoded, own_ms, lambda: broker_ms, LIMITS)  # noqa: B023
        failed += ((sequence, index, reason) for _, index, reason in decoded.errors)
        if decoded.rows.num_rows:
            own = decoded.event_time_ms
            times = kernels.coalesce(own, pa.array(broker_ms[decoded.message]))
            times = times.to_numpy(zero_copy_only=False)
            read.append(_Events(sequence, times, own[-1].is_valid, decoded.rows))
    return read, failed


def _expected(group: GroupSpec, read: Sequence[_Events]) -> dict[str, list[Any]]:
    """Rows by stream that a group emits, from messages that are processed one after the other.

    Those of ``FAILED_EVENTS`` are reasons.
    """
    outputs = [c.stream.name for c in group.outputs]
    if "Numbers" in outputs:
        # The partitioning layer only forwards events.
        return {}
    is_keyed = set(outputs) <= BY_KEY
    executor = Executor(bind_group(group), [*outputs, FAILED_EVENTS])
    clock = StreamClock()
    found: dict[str, list[Any]] = {stream: [] for stream in [*outputs, FAILED_EVENTS]}
    for one in read:
        clock.take(one.time_ms, one.is_own)
        sequence = np.full(one.rows.num_rows, one.sequence)
        chunk = None if is_keyed or not group.stateful else sequence
        run = InputRun("Numbers", sequence, one.time_ms, one.rows, chunk)
        for made in executor.run([run], {"Numbers": clock.now_ms}):
            if made.stream == FAILED_EVENTS:
                found[FAILED_EVENTS] += made.rows.column("reason").to_pylist()
            else:
                found[made.stream] += _values(to_json(made.rows))
    return found


def _values(encoded: Any) -> list[list[Any]]:
    return [list(json.loads(data).values()) for data in encoded.to_pylist()]


def _emitted(hand: Hand, app: str, stream: str) -> list[list[Any]]:
    """The values of all events of a stream."""
    found = _read(hand, names.js_stream(app, stream), names.subject(app, stream))
    return [list(json.loads(data).values()) for data in found]


def _recorded(hand: Hand, app: str) -> list[tuple[int, int, str]]:
    """Sequence, index and reason of each entry of the error stream."""
    found = _read(hand, names.error_js_stream(app), names.error_subject(app))
    entries = map(error_entry.from_json, found)
    return [(one["sequence"], one["index"], one["reason"]) for one in entries]


def _read(hand: Hand, stream: str, subject: str) -> list[bytes]:
    """The payloads of a subject."""
    broker = hand.broker

    def read() -> list[bytes]:
        (info,) = jetstream.stream_infos(broker, [stream]).values()
        if not info.last:
            return []
        (found,) = direct_get.read(broker, stream, [(info.first, info.last)])
        data: list[bytes] = found.data.filter(kernels.equal(found.subject, subject)).to_pylist()
        return data

    return broker.retry_while_unavailable("reading", read)


def _by_key(made: Sequence[Sequence[Any]]) -> dict[Any, list[Sequence[Any]]]:
    found: dict[Any, list[Sequence[Any]]] = defaultdict(list)
    for row in made:
        found[row[0]].append(row)
    return dict(found)


# --- playing


def play(minutes: float) -> int:
    """Check random messages for so long; the number of rounds without a finding."""
    logging.disable(logging.ERROR)
    deadline_s = time.monotonic() + minutes * 60
    rounds = 0
    while time.monotonic() < deadline_s:
        number = time.time_ns() % 2**32
        print(f"round {rounds}, seed {number}", flush=True)  # noqa: T201
        with stage() as hand:
            one = given(batches=BATCHES)(lambda batches: check(hand, batches))
            health = list(HealthCheck)
            seed(number)(
                settings(
                    max_examples=300, deadline=None, print_blob=True, suppress_health_check=health
                )(one)
            )()
        rounds += 1
    return rounds


@contextlib.contextmanager
def stage() -> Iterator[Hand]:
    """A server, and a shared query in which one app after the other runs."""
    with tempfile.TemporaryDirectory() as directory:
        running = server.start(Path(directory) / "nats")
        hand = Hand(Path(directory), running)
        try:
            yield hand
        finally:
            hand.serving.close()
            hand.broker.close()
            hand.pool.shutdown()
            connection.close_shared()
            running.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    play(parser.parse_args().minutes)
    sys.exit(0)
