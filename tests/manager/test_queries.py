"""On-demand queries from a client to the stored state and back, over NATS, without Spark."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from mesh.errors import MeshError
from mesh.model import names
from mesh.settings import QuerySettings
from tests.support.queries import PER_DAY, TOTALS, Inline, asking
from tests.support.stored_states import APP, INSTANCE, STREAM, StoredShop

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats


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


async def test_an_instance_that_is_not_there_is_named_and_never_left_out(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    worker = Inline()
    async with asking(nats_server, tmp_path, worker=worker) as at:
        # Nothing is stored, and the instance has not begun without a state.
        usual_s = at.queries._limits.timeout_s
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
