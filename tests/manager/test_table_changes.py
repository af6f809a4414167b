"""On-demand changes: published to the log of the group, made by its task, answered by its state."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pytest

from mesh.jetstream.channels import ensure_channels
from mesh.model import names
from mesh.settings import ChannelSettings
from mesh.spark import partition_task
from mesh.spark.instance_io import InstanceIO
from mesh.spark.local_state import InputPosition
from mesh.store.engine import engine_of
from pyspark_nats.source.rows import MARKED
from tests.support.databases import new_database
from tests.support.queries import asking
from tests.support.stored_states import APP, INSTANCE, STREAM

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.manager.queries import QueryAnswer
    from tests.support.queries import Scene

pytestmark = pytest.mark.nats

INSERT = "select 'pen' as item, 1.5 as price, 1 as n insert into Prices"


class Worker:
    """Runs the instance of a scene over its JetStream stream, as a task of Spark would."""

    def __init__(self, at: Scene) -> None:
        self._at = at
        directory = at.shop.local.directory.parent
        io = InstanceIO(at.shop.group, at.shop.assignment)
        self._task = partition_task.PartitionTask(io, str(directory), frozenset())
        self._streams = list(io.input_streams(0))
        self._done, self._time_ms = 0, 0

    async def work(self) -> int:
        """Run what is stored since, as one batch; the number of messages."""
        js = self._at.client.jetstream()
        last = (await js.stream_info(STREAM)).state.last_seq
        rows = self._edges(partition_task.RANGE_START)
        self._time_ms += 1
        found = [await js.get_msg(STREAM, n) for n in range(self._done + 1, last + 1)]
        for message in found:
            assert message.time is not None
            self._time_ms = max(self._time_ms, int(message.time.timestamp() * 1000))
            rows.append(
                {
                    "kind": partition_task.MESSAGE, "stream": STREAM, "time_ms": self._time_ms,
                    "sequence": message.seq, "subject": message.subject, "data": message.data,
                }
            )  # fmt: skip
        self._done = last
        rows += self._edges(partition_task.RANGE_END)
        list(self._task([pa.RecordBatch.from_pylist(rows, MARKED)]))
        return len(found)

    def _edges(self, kind: int) -> list[dict[str, Any]]:
        """An end of the ranges; other streams than ``STREAM`` have no messages."""
        return [
            {"kind": kind, "stream": stream, "time_ms": self._time_ms,
             "sequence": self._done if stream == STREAM else 0}
            for stream in self._streams
        ]  # fmt: skip

    async def until_done(self, asked: asyncio.Task[Any]) -> Any:
        """Work until a query is answered."""
        while not asked.done():
            await self.work()
            await asyncio.wait([asked], timeout=0.05)
        return await asked


@asynccontextmanager
async def _working(*given: Any, **more: Any) -> AsyncIterator[tuple[Scene, Worker]]:
    async with asking(*given, **more) as at:
        partition_task._LIVE.clear()
        await ensure_channels(at.client, at.shop.spec, ChannelSettings())
        worker = Worker(at)
        await worker.work()
        yield at, worker


async def test_changes_are_made_among_the_events(nats_server: NatsServer, tmp_path: Path) -> None:
    async with _working(nats_server, tmp_path) as (at, worker):

        async def change(query: str, **more: Any) -> Any:
            asked = at.queries.ask("Shop", query, may_change=True, **more)
            return await worker.until_done(asyncio.ensure_future(asked))

        made = await change(INSERT)
        assert made.to_values(details=False) | {"records": []} == {
            "records": [], "changed": 1, "positions": {STREAM: 1},
        }  # fmt: skip
        await at.client.jetstream().publish(
            "mesh.Shop.Orders", b'{"item": "ink", "price": 9.0, "n": 2}'
        )
        assert (await change("update Prices set Prices.n = Prices.n + 1 on true")).changed == 2
        assert await at.rows("from Prices select item, n order by item") == [["ink", 3], ["pen", 2]]
        assert (await change("delete Prices on Prices.item == 'pen'")).changed == 1
        # One that is sent again is made once, and answered as before.
        assert (await change(INSERT, id_="mine")).changed == 1
        last = (await at.client.jetstream().stream_info(STREAM)).state.last_seq
        assert (await change(INSERT, id_="mine")).changed == 1
        assert (await at.client.jetstream().stream_info(STREAM)).state.last_seq == last
        refused = await _refusal(change(INSERT))
        assert refused == "MESH-O111"
        assert len(await at.rows("from Prices")) == 2


async def _refusal(asked: Awaitable[Any]) -> str:
    from mesh.errors import MeshError

    with pytest.raises(MeshError) as error:
        await asked
    return error.value.code


async def test_a_client_of_nats_needs_the_subject_of_changes(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with _working(nats_server, tmp_path) as (at, worker):

        async def ask(subject: str, query: str) -> Any:
            request = at.client.request(subject, query.encode(), timeout=10)
            return orjson.loads((await worker.until_done(asyncio.ensure_future(request))).data)

        assert (await ask(names.query_subject("Shop"), INSERT))["code"] == "MESH-A403"
        assert (await ask(names.table_change_subject("Shop"), INSERT))["changed"] == 1
        assert (await ask(names.table_change_subject("Shop"), "from Prices"))["records"] == [
            ["pen", 1.5, 1]
        ]


async def test_a_change_that_is_not_made_in_time_is_kept(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with _working(nats_server, tmp_path) as (at, worker):
        usual_s = at.queries._limits.timeout_s
        at.limit(1.0)
        late = await at.refused(INSERT, may_change=True, id_="late")
        at.limit(usual_s)
        assert late.code == "MESH-A504"
        assert "late" in f"{late.hint}"
        assert await worker.work() == 1
        assert await at.rows("from Prices select item") == [["pen"]]
        again = await at.queries.ask("Shop", INSERT, may_change=True, id_="late")
        assert again.changed == 1
        at.records.assignments = ()
        at.limit(1.0)
        away = await at.refused(INSERT, may_change=True)
        assert away.code == "MESH-A503"
        assert INSTANCE in away.message
        assert await worker.work() == 0


async def test_an_answer_waits_for_a_change_that_waits_for_other_inputs(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    text = APP.replace(
        "define table Unused", "define stream More (item string);\ndefine table Unused"
    )
    text += "from More delete Prices on Prices.item == item;\n"

    async with _working(nats_server, tmp_path, text=text) as (at, worker):
        asked = asyncio.ensure_future(at.queries.ask("Shop", INSERT, may_change=True))
        before = (await at.client.jetstream().stream_info(STREAM)).state.last_seq
        await at.client.flush()
        while (await at.client.jetstream().stream_info(STREAM)).state.last_seq == before:
            await asyncio.wait([asked], timeout=0.05)
        assert await worker.work() == 1
        # The message is in the state, and waits until the other stream is past its time.
        assert (
            await at.queries.ask("Shop", "from Prices", at_least={STREAM: before + 1})
        ).records == b"[]"
        assert not asked.done()
        assert (await worker.until_done(asked)).changed == 1


async def test_a_table_in_a_store_is_changed(nats_server: NatsServer, tmp_path: Path) -> None:
    store = new_database(None, tmp_path, "shop")
    text = APP.replace("@PrimaryKey", f"{store.store()} @PrimaryKey")
    rows = 'select item, n from "Prices" order by item'

    async with _working(nats_server, tmp_path, text=text) as (at, worker):

        async def change(query: str) -> int | None:
            asked = at.queries.ask("Shop", query, may_change=True)
            answer: QueryAnswer = await worker.until_done(asyncio.ensure_future(asked))
            return answer.changed

        assert await change(INSERT) == 1
        # An answer comes when the change is in the database.
        assert store.rows(rows) == [("pen", 1)]
        assert await change("update Prices set Prices.n = Prices.n + 1 on true") == 1
        assert await change(INSERT.replace("pen", "ink")) == 1
        assert store.rows(rows) == [("ink", 1), ("pen", 2)]
        assert await change("delete Prices on Prices.item == 'pen'") == 1
        assert store.rows(rows) == [("ink", 1)]
        assert await at.rows("from Prices select item, n") == [["ink", 1]]
        assert await _refusal(change(INSERT.replace("pen", "x" * 300))) == "MESH-O111"
        assert store.rows(rows) == [("ink", 1)]


async def test_a_table_that_is_read_from_its_database(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    store = new_database(None, tmp_path, "shop")
    text = APP.replace("@PrimaryKey", f"{store.store(kept='false')} @PrimaryKey")

    async with _working(nats_server, tmp_path, text=text) as (at, worker):
        asked = at.queries.ask("Shop", INSERT, may_change=True)
        assert (await worker.until_done(asyncio.ensure_future(asked))).changed == 1
        with engine_of(store.database).begin() as connection:
            connection.exec_driver_sql("INSERT INTO \"Prices\" VALUES ('ink', 9.0, 2)")
        # Another program's row is there at once, and no state has it.
        assert await at.rows("from Prices on price > 2.0 select item, n") == [["ink", 2]]
        assert await at.rows("from Prices select item order by item") == [["ink"], ["pen"]]
        asked = at.queries.ask("Shop", "delete Prices on Prices.n > 0", may_change=True)
        assert (await worker.until_done(asyncio.ensure_future(asked))).changed == 2
        assert store.rows('select * from "Prices"') == []
        assert await at.rows("from Prices select item") == []


async def test_a_task_that_runs_again_makes_a_change_once(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """A state of an earlier position, and the same messages in one batch instead of several."""

    async with _working(nats_server, tmp_path) as (at, worker):
        subject = names.change_subject(STREAM, at.shop.group.name)
        js = at.client.jetstream()
        add = "update Prices set Prices.n = Prices.n + 1 on true"
        for number, query in enumerate((INSERT, add, add)):
            await js.publish(subject, orjson.dumps({"id": f"{number}", "query": query}))
        # Messages that are no changes are markers.
        await js.publish(subject, b"{")
        await js.publish(f"{names.marker_subject(STREAM)}.p", b"{}")
        position = InputPosition.of({STREAM: {"sequence": 0, "time_ms": 1}}, [STREAM])
        assert at.shop.local.manifest(position) is not None
        await worker.work()
        first = await at.rows("from Prices")
        worker._done, worker._time_ms = 0, 1
        partition_task._LIVE.clear()
        await worker.work()
        assert await at.rows("from Prices") == first == [["pen", 1.5, 3]]
