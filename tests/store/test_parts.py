"""An aggregation in a database, of two instances with two parts each: together they are the whole.

Each part has its own marker and reads the rows of its own groups; their answers are merged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from mesh.manager.query_parts import merged_records
from mesh.model.cluster import Assignment
from mesh.model.partition import partitions
from mesh.model.question import AnswerTask
from mesh.plan.build import plan
from mesh.spark import partition_task
from mesh.spark.instance_io import InputPosition, InstanceIO, LocalState
from mesh.worker.answering import answer_task
from mesh.worker.questions import keys_of
from tests.support.databases import new_database
from tests.support.trades import APP as TRADES
from tests.support.trades import TEN_MS, Trade, end_partitions
from tools.conformance.script import StepCall
from tools.conformance.spark_rows import marked_rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.databases import DatabaseServer

pytestmark = pytest.mark.usefixtures("ended_partitions")

NAMES = ["symbol", "price", "quantity", "timestamp"]
TYPES = (pa.string(), pa.float64(), pa.int64(), pa.int64())
APP = TRADES.replace("sum(quantity)", "distinctCount(price) as prices, sum(quantity)")
QUERY = (
    f"from TradeAggregation within {TEN_MS}L, {TEN_MS + 3_600_000}L per 'hours' "
    "select symbol, sum(total) as total, avg(avgPrice) as price, sum(prices) as prices "
    "group by symbol order by symbol"
)


class Parts:
    """The instances of a group; each part stores its state after a run, or does not."""

    def __init__(self, directory: Path, text: str) -> None:
        self.directory, self.text = directory, text
        self.group = next(g for g in plan(text).spec.groups if g.name == "g")
        self.count = self.group.inputs[0].channel.partitions
        self.ios = {
            number: InstanceIO(
                self.group, Assignment(name, "TradeApp", "g", index, "n1", "w1", 3, 0)
            )
            for index, name in enumerate(self.group.instances, start=1)
            for number in self.group.partitions_of(index)
        }
        self.stored = dict.fromkeys(self.ios, 0)

    def _directory(self, number: int) -> Path:
        return self.directory / str(self.ios[number].assignment.instance) / "3-1"

    def run(self, now_ms: int, *trades: Trade, only: tuple[int, ...] = ()) -> None:
        """Each part processes its trades; with ``only``, just some parts get any and run."""
        rows = pa.RecordBatch.from_arrays(
            [pa.array([t[at] for t in trades], type) for at, type in enumerate(TYPES)], names=NAMES
        )
        place = partitions([rows.column("symbol")], self.count)
        for number in only or self.ios:
            own = rows.filter(pa.array(place == number))
            self._run(number, now_ms, own)

    def _run(self, number: int, now_ms: int, rows: pa.RecordBatch) -> None:
        io = self.ios[number]
        inputs = io.input_streams(number)
        local = LocalState(self._directory(number) / str(number))
        if local.is_empty():
            local.put_new()
        newest = local.newest()
        nothing = {stream: {"sequence": 0, "time_ms": 0} for stream in inputs}
        position = InputPosition.of(nothing, nothing) if newest is None else newest.position_of
        sent = StepCall(now_ms)
        if rows.num_rows:
            sent = StepCall(now_ms, "TradeStream", np.full(rows.num_rows, now_ms), rows)
        batch, _ = marked_rows(inputs, position, 0, sent)
        (group_input,) = inputs.values()
        subject = group_input.channel.subject(number)
        subjects = [subject if kind == 0 else None for kind in batch.column("kind").to_pylist()]
        at = batch.schema.get_field_index("subject")
        batch = batch.set_column(at, batch.schema.field(at), pa.array(subjects, pa.string()))
        task = partition_task.PartitionTask(io, str(self._directory(number)), frozenset())
        for _ in task([batch]):
            pass

    def ask(self) -> Any:
        """The merged answer; None where a state is older than the database."""
        found = []
        for number, io in self.ios.items():
            answer = answer_task(
                AnswerTask(
                    str(self.directory), io.assignment.instance, 3, number, self.text,
                    self.group.text, (), tuple(io.input_streams(number)), QUERY, {}, 1000, 10**6,
                    is_divided=True, producer=f"TradeApp/{io.producer(str(number))}",
                    keys=keys_of(self.group),
                )
            )  # fmt: skip
            if answer is None:
                return None
            found.append(answer.data)
        return orjson.loads(merged_records(self.text, QUERY, found, 1000))


@pytest.mark.slow
def test_parts_are_the_whole(postgresql: DatabaseServer, tmp_path: Path) -> None:
    store = new_database(postgresql, tmp_path, "parts")
    dist = "@dist(execGroup='g', parallel='2', partitions='4') "
    parts = Parts(tmp_path, APP.format(store=dist + store.store()))
    at = TEN_MS + 60_000
    symbols = [f"S{number}" for number in range(12)]
    assert len(set(partitions([pa.array(symbols)], 4).tolist())) == 4
    parts.run(at, *((symbol, 2.0, 1, at) for symbol in symbols))
    whole = [[symbol, 1, 2.0, 1] for symbol in sorted(symbols)]
    assert parts.ask() == whole
    # The amounts are in the database, and are found once, by the part that has the group.
    parts.run(at + 20_000)
    rows = store.rows('select sum("AGG_SUM_quantity"), count(*) from "TradeAggregation_HOURS"')
    assert rows == [(12, 12)]
    assert parts.ask() == whole
    assert len(store.rows("select producer from mesh_marker")) == 4
    parts.run(at + 30_000, *((symbol, 4.0, 2, at) for symbol in symbols))
    whole = [[symbol, 3, 3.0, 2] for symbol in sorted(symbols)]
    assert parts.ask() == whole
    # Parts that write at different times, from their stored states.
    end_partitions()
    for number in parts.ios:
        parts.run(at + 60_000, only=(number,))
        assert parts.ask() == whole
    end_partitions()
    parts.run(at + 90_000, ("S3", 9.0, 7, at))
    assert ["S3", 10, 5.0, 3] in parts.ask()
