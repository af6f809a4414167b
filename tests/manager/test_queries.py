"""On-demand queries from a client to the stored state and back, over NATS, without Spark."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pytest

from mesh.errors import MeshError
from mesh.jetstream.channels import ensure_channels
from mesh.model import names
from mesh.settings import ChannelSettings, QuerySettings
from mesh.spark import partition_task
from mesh.spark.instance_io import InputPosition, InstanceIO
from mesh.store.engine import engine_of
from pyspark_nats.source.rows import MARKED
from tests.support.databases import new_database
from tests.support.queries import PER_DAY, TOTALS, Inline, asking
from tests.support.stored_states import APP, INSTANCE, STREAM, StoredShop

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
        partition_task.LIVE_STATES.clear()
        await ensure_channels(at.client, at.shop.spec, ChannelSettings())
        worker = Worker(at)
        await worker.work()
        yield at, worker


@pytest.mark.slow
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


@pytest.mark.slow
async def test_a_change_that_is_not_made_in_time_is_kept(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with _working(nats_server, tmp_path) as (at, worker):
        usual_s = at.queries.limits.timeout_s
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


@pytest.mark.slow
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
        partition_task.LIVE_STATES.clear()
        await worker.work()
        assert await at.rows("from Prices") == first == [["pen", 1.5, 3]]


async def test_a_query_is_answered_from_the_stored_state(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with asking(nats_server, tmp_path) as at:
        at.shop.order(("pen", 1.5, 1), ("ink", 9.0, 2), ("pen", 2.5, 3))
        at.shop.store()
        answer = await at.queries.ask(
            "Shop", "from Prices on price > 2.0 select item, n order by n"
        )
        assert orjson.loads(orjson.dumps(answer.to_values(details=True))) == {
            "records": [["ink", 2], ["pen", 3]],
            "details": [
                {"name": "item", "dataType": "STRING"},
                {"name": "n", "dataType": "INT"},
            ],
            "positions": {STREAM: 3},
        }
        assert await at.rows("from Recent select sum(n) as n") == [[6]]
        assert await at.rows("from Prices select twice(n) as m order by m") == [[4], [6]]
        assert await at.rows("from Unused") == []
        at.shop.order(("cap", 3.0, 4))
        assert await at.rows("from Prices on item == 'cap'") == []
        at.shop.store()
        assert await at.rows("from Prices on item == 'cap'") == [["cap", 3.0, 4]]


@pytest.mark.parametrize("is_older", [False, True])
async def test_the_rows_of_one_part_are_passed_on_as_they_are(
    nats_server: NatsServer, tmp_path: Path, is_older: bool
) -> None:
    manager, worker = Inline(), Inline(is_older)

    async with asking(nats_server, tmp_path, manager=manager, worker=worker) as at:
        at.shop.order(("pen", 0.1, 1), ("ink", 9.0, 2))
        at.shop.store()
        text = "from Prices select item, convert(price, 'float') as price order by item"
        assert await at.rows(text) == [["ink", 9.0], ["pen", 0.1]]
        assert manager.calls == ["plan_query", *(["records_of"] if is_older else [])]


async def test_an_aggregation_is_asked(nats_server: NatsServer, tmp_path: Path) -> None:
    async with asking(nats_server, tmp_path, text=TOTALS) as at:
        at.shop.order(("pen", 1.5, 1), ("ink", 9.0, 2), ("pen", 2.5, 3))
        at.shop.store()
        assert await at.rows(f"{PER_DAY} AGG_TIMESTAMP, item, total order by total") == [
            [0, "ink", 2], [0, "pen", 4],
        ]  # fmt: skip
        assert await at.rows(f"{PER_DAY} sum(total) as n") == [[6]]
        assert (await at.refused(PER_DAY.replace("1970-", "soon") + "item")).code == "MESH-L226"
        # Of buckets that are over, by the clock of the app.
        seconds = "from Totals_SECONDS select AGG_TIMESTAMP, item, AGG_SUM_n order by item"
        assert await at.rows(seconds) == []
        at.shop.count += 500
        at.shop.order(("cap", 1.0, 1))
        at.shop.store()
        assert await at.rows(seconds) == [[0, "ink", 2], [0, "pen", 4]]
        assert (await at.refused("from Totals_HOUR")).code == "MESH-L217"
        await at.queries.check_aggregation("Shop", "Totals")
        with pytest.raises(MeshError, match="MESH-A404"):
            await at.queries.check_aggregation("Shop", "Others")
        failed = await at.refused(PER_DAY.replace("'days'", "str:concat('we', 'eks')") + "item")
        assert failed.code == "MESH-O110"
        assert "Totals" in failed.message
        # Each of several parts has some of the groups.
        group = replace(at.shop.spec.groups[0], parallel=2)
        at.shop.spec = replace(at.shop.spec, groups=(group,))
        at.limit(0.5)
        assert (await at.refused(f"{PER_DAY} item, total")).code == "MESH-A503"


async def test_parts_are_merged(nats_server: NatsServer, tmp_path: Path) -> None:
    """Aggregates, groups, order and limits are those of all parts together."""

    async with asking(nats_server, tmp_path, QuerySettings(rows_max=3), text=TOTALS) as at:
        other = StoredShop(tmp_path, text=TOTALS, name="Shop-default-2")
        spec = at.shop.spec
        at.shop.spec = replace(spec, groups=(replace(spec.groups[0], parallel=2),))
        at.records.assignments = (at.shop.assignment, other.assignment)
        at.questions.began(other.assignment, at.shop.spec.groups[0])
        at.shop.order(("pen", 1.5, 1), ("ink", 9.0, 2), ("pen", 2.5, 3))
        other.order(("cap", 1.5, 10), ("cup", 9.0, 1), ("cap", 2.5, 10))
        at.shop.store()
        other.store()
        assert await at.rows(f"{PER_DAY} sum(total) as n, avg(total) as a, count() as c") == [
            [27, 6.75, 4]
        ]
        assert await at.rows(f"{PER_DAY} item, total order by total desc limit 2") == [
            ["cap", 20], ["pen", 4],
        ]  # fmt: skip
        assert await at.rows(f"{PER_DAY} total order by total offset 3") == [[20]]
        assert sorted(await at.rows(f"{PER_DAY} str:length(item) as n, max(total) as m")) == [
            [3, 20]
        ]
        assert (await at.refused(f"{PER_DAY} item")).code == "MESH-A413"
        assert (await at.refused(f"{PER_DAY} and(total > 1L) as n")).code == "MESH-P900"
        at.records.assignments = (at.shop.assignment,)
        partial = await at.queries.ask("Shop", f"{PER_DAY} sum(total) as n", partial=True)
        assert (partial.records, partial.missing) == (b"[[6]]", ("Shop-default-2",))


@pytest.mark.slow
async def test_a_position_is_waited_for(nats_server: NatsServer, tmp_path: Path) -> None:
    async with asking(nats_server, tmp_path) as at:
        at.shop.order(("pen", 1.5, 1))
        at.shop.store()
        asked = asyncio.create_task(at.queries.ask("Shop", "from Prices", at_least={STREAM: 2}))
        at.shop.order(("ink", 9.0, 2))
        at.shop.store()
        assert (await asked).positions == {STREAM: 2}
        at.limit(2.0)
        late = await at.refused("from Prices", at_least={STREAM: 3})
        assert late.code == "MESH-A504"
        other = await at.refused("from Prices", at_least={"mesh-Shop-Other": 1})
        assert other.code == "MESH-A400"


@pytest.mark.slow
async def test_an_instance_that_is_not_there_is_named_and_never_left_out(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    worker = Inline()
    async with asking(nats_server, tmp_path, worker=worker) as at:
        # Nothing is stored, and the instance has not begun without a state.
        usual_s = at.queries.limits.timeout_s
        at.limit(0.4)
        starting = await at.refused("from Prices")
        assert (starting.code, "asked for 0.4 s" in f"{starting.detail}") == ("MESH-A503", True)
        at.limit(usual_s)
        # The first question waits until it has.
        asked = asyncio.create_task(at.rows("from Prices"))
        worker.calls.clear()
        while "answer_task" not in worker.calls:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
        at.shop.local.put_new()
        assert await asked == []
        at.limit(0.4)
        at.shop.order(("pen", 1.5, 1))
        at.shop.store()
        at.records.moved(at.shop.epoch + 1)
        away = await at.refused("from Prices")
        assert away.code == "MESH-A503"
        assert INSTANCE in away.message
        partial = await at.queries.ask("Shop", "from Prices", partial=True)
        assert (partial.records, partial.missing) == (b"[]", (INSTANCE,))
        at.records.moved(at.shop.epoch)
        at.questions.ended(at.shop.assignment)
        assert (await at.refused("from Prices")).code == "MESH-A503"
        at.records.assignments = (replace(at.shop.assignment, worker="gone"),)
        assert (await at.refused("from Prices")).code == "MESH-A503"
        at.records.assignments = ()
        assert (await at.refused("from Prices")).code == "MESH-A503"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "MESH-A400"),
        ("x" * 100_001, "MESH-A400"),
        ("from Prices select", "MESH-L104"),
        ("from Prices on zz == 1", "MESH-L202"),
        ("from Orders", "MESH-L217"),
        ("select 'a' as item insert into Unused", "MESH-A403"),
        ("delete Prices on Prices.item == 'a'", "MESH-A403"),
        ("from Prices", "MESH-A413"),
        ("from Prices on n < 3 select item, n, price as p, item as i", "MESH-A413"),
    ],
)
async def test_queries_that_are_refused(
    query: str, code: str, nats_server: NatsServer, tmp_path: Path
) -> None:
    async with asking(nats_server, tmp_path, QuerySettings(rows_max=4, bytes_max=3000)) as at:
        at.shop.order(*((f"{'long' * 200}{n}", 1.0, n) for n in range(5)))
        at.shop.store()
        assert (await at.refused(query)).code == code


async def test_a_client_of_nats_asks_any_manager(nats_server: NatsServer, tmp_path: Path) -> None:
    async with asking(nats_server, tmp_path) as at:
        at.shop.order(("pen", 1.5, 1))
        at.shop.store()
        subject = names.query_subject("Shop")

        async def asked(data: bytes, to: str = subject) -> Any:
            return orjson.loads((await at.client.request(to, data, timeout=10)).data)

        assert (await asked(b"from Prices"))["records"] == [["pen", 1.5, 1]]
        wanted = {"query": "from Prices select n", "details": True, "min_position": {STREAM: 1}}
        found = await asked(orjson.dumps(wanted))
        assert found["details"] == [{"name": "n", "dataType": "INT"}]
        assert found["positions"] == {STREAM: 1}
        assert (await asked(b"from Nothing"))["code"] == "MESH-L217"
        for faulty in (b"\xff", b"{", b'{"query": 1}', b'{"query": "from T", "partial": 1}'):
            assert (await asked(faulty))["code"] == "MESH-A400"
        elsewhere = await asked(b"from Prices", names.query_subject("Other"))
        assert elsewhere["code"] == "MESH-A404"


async def test_a_fault_is_an_answer(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking(nats_server, tmp_path) as at:
        monkeypatch.setattr(at.questions, "_task", int)
        assert (await at.refused("from Prices")).code == "MESH-A500"
        monkeypatch.setattr(at.queries, "ask", int)
        answer = await at.client.request(names.query_subject("Shop"), b"from Prices", timeout=20)
        assert b"MESH-A500" in answer.data


async def test_an_answer_goes_to_inboxes_only(nats_server: NatsServer, tmp_path: Path) -> None:
    """Otherwise a client could have a manager or a worker publish to any subject."""

    async with asking(nats_server, tmp_path) as at:
        at.shop.local.put_new()
        received: list[str] = []

        async def receive(message: Any) -> None:
            received.append(message.subject)

        await at.client.subscribe("mesh.Shop.Orders", cb=receive)
        for subject in (names.query_subject("Shop"), names.question_subject("w1")):
            await at.client.publish(subject, b"from Prices", reply="mesh.Shop.Orders")
        assert await at.rows("from Prices") == []
        await at.client.flush()
        assert received == []


async def test_an_answer_may_need_several_messages(nats_server: NatsServer, tmp_path: Path) -> None:
    async with asking(nats_server, tmp_path) as at:
        items = [f"{'item' * 500}{n}" for n in range(2000)]
        at.shop.order(*((item, 1.0, n) for n, item in enumerate(items)))
        at.shop.store()
        assert at.client.max_payload < 4_000_000
        assert len(await at.rows("from Prices")) == 2000
        answer = await at.client.request(names.query_subject("Shop"), b"from Prices", timeout=20)
        assert orjson.loads(answer.data)["code"] == "MESH-A413"


async def test_only_so_many_wait(nats_server: NatsServer, tmp_path: Path) -> None:
    async with asking(nats_server, tmp_path, QuerySettings(waiting_max=2, timeout_s=0.5)) as at:
        at.shop.local.put_new()
        asked = [at.queries.ask("Shop", "from Prices", at_least={STREAM: 1}) for _ in range(4)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        codes = sorted(one.code for one in found if isinstance(one, MeshError))
        assert codes[:2] == ["MESH-A429", "MESH-A429"]
        assert set(codes[2:]) <= {"MESH-A503", "MESH-A504"}


SLOW = APP.replace("return data[0] * 2", "while True: pass")


@pytest.mark.slow
async def test_a_query_that_never_ends_ends_its_process_alone(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    limits = QuerySettings(timeout_s=1.0)
    async with asking(nats_server, tmp_path, limits, is_real=True, text=SLOW) as at:
        at.shop.order(("pen", 1.5, 1))
        at.shop.store()
        endless = await at.refused("from Prices select twice(n) as m")
        assert endless.code in ("MESH-A413", "MESH-A503")
        for _ in range(40):
            # The next process has to start first.
            with contextlib.suppress(MeshError):
                assert await at.rows("from Prices select n") == [[1]]
                return
        raise AssertionError("no answer any more")
