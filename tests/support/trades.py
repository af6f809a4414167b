"""The active-active case: trades, aggregated on nodes that share one database; without Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from mesh.model.cluster import Assignment
from mesh.model.question import AnswerTask
from mesh.model.stored import Backend
from mesh.plan.build import plan
from mesh.spark import partition_task
from mesh.spark.instance_io import InputPosition, InstanceIO, LocalState
from mesh.worker.answering import answer_task
from tests.support.databases import PASSWORD, USER
from tools.conformance.script import StepCall
from tools.conformance.spark_rows import marked_rows

if TYPE_CHECKING:
    from tests.support.databases import TestDatabase

APP = """@App:name('TradeApp')
define stream TradeStream (symbol string, price double, quantity long, timestamp long);
{store}
define aggregation TradeAggregation
from TradeStream
select symbol, avg(price) as avgPrice, sum(quantity) as total
group by symbol
aggregate by timestamp every sec ... year;
"""
#: 2026-11-23 10:00:00, in milliseconds.
TEN_MS = 1_795_428_000_000
Trade = tuple[str, float, int, int]


def as_the_seed_has_it(store: TestDatabase) -> str:
    """The annotation of a database; the driver's class has no name there."""
    if store.database.backend is Backend.SQLITE:
        return store.store()
    return (
        f'@store(type=\'rdbms\', jdbc.url="{store.url}", username="{USER}", '
        f'password="{PASSWORD}", "com.mysql.jdbc.Driver")'
    )


def end_partitions() -> None:
    """Close the partitions that tasks of this process have."""
    for _, partition in partition_task.LIVE_STATES.values():
        partition.close()
    partition_task.LIVE_STATES.clear()


@dataclass
class Node:
    """A mesh with one instance: what it has stored survives, all else may end at any moment."""

    directory: Path
    text: str
    name: str = "n1"
    epoch: int = 1
    _io: InstanceIO = field(init=False)

    def __post_init__(self) -> None:
        (group,) = plan(self.text).spec.groups
        assignment = Assignment(
            group.instances[0], "TradeApp", group.name, 1, self.name, "w1", self.epoch, 0
        )
        self._io = InstanceIO(group, assignment)

    @property
    def run_directory(self) -> Path:
        return self.directory / str(self._io.assignment.instance) / f"{self.epoch}-1"

    @property
    def position(self) -> InputPosition:
        """That of the stored state."""
        local = LocalState(self.run_directory / "0")
        if local.is_empty():
            local.put_new()
        newest = local.newest()
        if newest is not None:
            return newest.position_of
        nothing = {stream: {"sequence": 0, "time_ms": 0} for stream in self._io.input_streams(0)}
        return InputPosition.of(nothing, nothing)

    def run(self, now_ms: int, *trades: Trade) -> None:
        """Process one message of trades after the stored position, or let time pass."""
        rows = None
        if trades:
            columns = zip(*trades, strict=True)
            types = (pa.string(), pa.float64(), pa.int64(), pa.int64())
            names = ["symbol", "price", "quantity", "timestamp"]
            arrays = [pa.array(list(c), t) for c, t in zip(columns, types, strict=True)]
            rows = pa.RecordBatch.from_arrays(arrays, names=names)
        times = np.full(len(trades), now_ms)
        sent = StepCall(now_ms, "TradeStream", times, rows) if trades else StepCall(now_ms)
        task = partition_task.PartitionTask(self._io, str(self.run_directory), frozenset())
        batch, _ = marked_rows(self._io.input_streams(0), self.position, 0, sent)
        for _ in task([batch]):
            pass

    def forget(self) -> None:
        """End the process, as far as this one remembers it."""
        end_partitions()

    def ask(self, query: str) -> list[Any] | None:
        """The rows of an on-demand query; None if the state is older than the database."""
        group = self._io.group
        answer = answer_task(
            AnswerTask(
                str(self.directory), self._io.assignment.instance, self.epoch, 0, self.text,
                group.text, (), tuple(self._io.input_streams(0)), query, {}, 1000, 10**6,
                producer=f"TradeApp/{self._io.producer('0')}",
            )
        )  # fmt: skip
        if answer is None:
            return None
        with pa.ipc.open_stream(answer.data) as reader:
            return [list(row.values()) for row in reader.read_all().to_pylist()]

    def total(self, per: str = "hours") -> Any:
        """The sum of quantities in the hour from ten on, and the rows that it is of."""
        return self.ask(
            f"from TradeAggregation within {TEN_MS}L, {TEN_MS + 3_600_000}L per '{per}' "
            "select symbol, sum(total) as total group by symbol order by symbol"
        )
