"""What a task of a carrier does: batches of several members, one after the other.

A batch of a member's part is read, computed and published here, in one process: its rows come into
Spark only as an outcome, one row a part.  What fails, fails for that member alone.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.compute

from mesh.spark import carrier_member, stateless
from mesh.spark.carrier_work import FAILED, OUTCOME, WORK, Work
from mesh.spark.host import HostTask, without_skipped
from mesh.spark.wiring import js_stream_of
from pyspark_nats import batches, outgoing
from pyspark_nats.connection import shared
from pyspark_nats.errors import UnavailableError
from pyspark_nats.publish import Origin, Publisher

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mesh.spark.carrier_member import Member, Part
    from mesh.spark.kernel_query import KernelTask
    from mesh.spark.wiring import Wiring

#: The stubs know each function of Arrow by a dozen overloads, and reject most honest calls.
_compute: Any = pyarrow.compute


class CarriedTask(HostTask):
    """The host's, for partitions that are waited for each by itself."""

    def wakeup(self, partition: int) -> Path:
        """See ``HostTask.wakeup``."""
        return carrier_member.wakeups(Path(self.directory), str(partition)) / str(partition)


@dataclass(slots=True)
class _Counts:
    messages: int = 0
    rows: int = 0
    errors: int = 0


def outcomes(directory: str, batch: int, work: Iterable[Work]) -> Iterator[pa.RecordBatch]:
    """Do the work; one row for each piece, columns as ``OUTCOME``."""
    for one in work:
        counts, failure = _Counts(), one.failure
        started_s = time.perf_counter()
        if one.kind == WORK:
            try:
                if not _do(Path(directory), batch, one, counts):
                    # It was taken out meanwhile.
                    continue
            except UnavailableError:
                # There is no server: the others would each wait for it.
                raise
            # A member's failure is its own.
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
        took_ms = (time.perf_counter() - started_s) * 1000
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


def _do(directory: Path, batch: int, one: Work, counts: _Counts) -> bool:
    member = _member(directory, one.file_name)
    if member is None:
        return False
    part = next(p for p in member.parts if p.key == one.part)
    rows = batches.read(part.options, part.form, one.ranges)
    made = (
        _with_state(member, part, rows, counts)
        if member.wiring.group.stateful
        else _without(member, part, rows, counts)
    )
    # Names this run of the batch: a later run of the same member counts its batches anew.
    run = f"{member.wiring.assignment.epoch}.{member.generation}-{batch}"
    publisher = Publisher(shared(member.sink.connection), member.sink, Origin(run, part.number))
    errors = member.wiring.errors[0]
    for out in made:
        if out.num_rows:
            counts.rows += out.num_rows
            recorded = _compute.sum(_compute.equal(out.column("stream"), errors)).as_py() or 0
            counts.rows, counts.errors = counts.rows - recorded, counts.errors + recorded
            publisher.add(
                outgoing.completed(out, stream="", subject="", producer="", first_position=0)
            )
    publisher.finish()
    return True


@lru_cache(maxsize=1024)
def _kept(directory: Path, file_name: str) -> Member:
    found = carrier_member.read(directory, file_name)
    if found is None:
        raise FileNotFoundError(file_name)
    return found


def _member(directory: Path, file_name: str) -> Member | None:
    try:
        return _kept(directory, file_name)
    except FileNotFoundError:
        return None


def _with_state(
    member: Member, part: Part, rows: Iterator[pa.RecordBatch], counts: _Counts
) -> Iterator[pa.RecordBatch]:
    restored = frozenset([int(part.key)]) if part.is_restored else frozenset[int]()
    task = CarriedTask(member.wiring, member.directory, restored)

    def counted() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            edges = _compute.sum(_compute.not_equal(batch.column("kind"), 0)).as_py() or 0
            counts.messages += batch.num_rows - edges
            yield batch

    return task(counted())


def _without(
    member: Member, part: Part, rows: Iterator[pa.RecordBatch], counts: _Counts
) -> Iterator[pa.RecordBatch]:
    """A group without state, its legs one after the other over the same rows."""
    skips = member.wiring.skips(part.key)
    read = [without_skipped(batch, "_sequence", skips) for batch in rows]
    counts.messages += sum(batch.num_rows for batch in read)
    for leg in _legs(member.wiring):
        if leg.input == part.key:
            yield from leg.run(read)


@dataclass(frozen=True, slots=True)
class _Leg:
    """A leg with its queries and its encoding, ready to run."""

    #: JetStream stream.
    input: str
    records: bool
    queries: tuple[KernelTask, ...]
    encode: stateless.EncodeTask

    def run(self, read: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows with metadata in, rows for the sink out."""
        rows = read
        if not self.records:
            rows = [batch.filter(_compute.is_null(batch.column("_error"))) for batch in read]
        for query in self.queries:
            rows = query(rows)
        return self.encode(rows)


@lru_cache(maxsize=1024)
def _legs(wiring: Wiring) -> tuple[_Leg, ...]:
    return tuple(
        _Leg(
            js_stream_of(one.leg.input, 0),
            one.records,
            tuple(stateless.kernel_task(wiring, query, one) for query in one.leg.queries),
            stateless.EncodeTask(wiring, one.leg, one.producer(wiring), one.part(wiring)),
        )
        for one in stateless.numbered(wiring)
    )
