"""Tables in Redis: their keys and fields, rows of others, life, and what a server may not do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mesh.errors import MeshError
from mesh.jetstream.server import free_port
from mesh.model.stored import (
    EVERY_ROW,
    UNFIT,
    AnyKey,
    Compared,
    Comparison,
    MergeRule,
    ReadRun,
    StoredColumn,
    StoredTable,
)
from mesh.model.types import AttributeType
from mesh.operators.base import no_rows
from mesh.plan.redis_stores import redis_of
from mesh.receiver.store_check import store_problem
from mesh.store.backends import read
from mesh.store.reads import LIFE_MS
from mesh.store.redis_client import Hashes, connected
from mesh.store.redis_writer import RedisWriter, _rows
from tests.store.test_crashes import TABLES
from tests.store.test_lookup_table import Small, in_database
from tests.store.test_tables import Life, events_of
from tests.support.certificates import Authority
from tests.support.databases import PASSWORD, new_database
from tests.support.recorder import stored
from tests.support.trades import TEN_MS, Node

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import DatabaseServer, TestDatabase

T = AttributeType
TABLE = StoredTable(
    "Stock",
    (
        StoredColumn("item", T.STRING, MergeRule.KEY),
        StoredColumn("shelf", T.INT, MergeRule.KEY),
        StoredColumn("number", T.LONG, MergeRule.LATEST),
        StoredColumn("price", T.FLOAT, MergeRule.LATEST),
        StoredColumn("sold", T.BOOL, MergeRule.LATEST),
    ),
)


@pytest.fixture
def client(in_redis: TestDatabase) -> Iterator[Any]:
    """Another program."""
    made = connected(in_redis.database)
    yield made
    made.close()


def hashes(client: Any) -> dict[str, dict[str, str]]:
    """All hashes but those of the mesh."""
    keys = sorted(key for key in client.scan_iter() if not key.startswith(b"mesh_"))
    return {
        key.decode(): {n.decode(): v.decode() for n, v in client.hgetall(key).items()}
        for key in keys
    }


@pytest.fixture
def small(in_redis: TestDatabase) -> Iterator[Small]:
    made = Small(in_database(in_redis))
    yield made
    made.output.close()


def test_a_row_is_a_hash_of_texts(in_redis: TestDatabase, client: Any) -> None:
    life = Life(in_redis, [("insert", "dé:'", 1, 0.5, None), ("upsert", "b", 2, 2.0, True)])
    life.run(2, keeps=True)
    life.output.close()
    found = hashes(client)
    assert found["T:dé:'"] == {"k": "dé:'", "n": "1", "v": "0.5"}
    assert found["T:b"] == {"k": "b", "n": "2", "v": "2.0", "flag": "true"}
    # The key's parts are in the order of the definition.
    assert found["Pairs:b:2"] == {"k": "b", "v": "2.0", "n": "2"}
    assert found["Pairs:dé%3A':1"]["n"] == "1"
    assert found["Log:0"] == {"MESH_ROW": "0", "k": "dé:'", "n": "1", "v": "0.5"}
    (marker,) = client.keys("mesh_*")
    assert client.hget(marker, "position") == str(life.output.writer_of["T"].position).encode()


def test_rows_of_other_programs_are_found(small: Small, client: Any) -> None:
    assert small.send(("a", 1)) == []
    client.hset("T:a", mapping={"n": 1, "f": "0.1", "flag": "1", "more": "x"})
    client.set("T:text", "no hash")
    client.hset("T:other", "more", "no field of the table")
    found = [("a", 1), ("a", 101), ("other", 101), ("text", 101)]
    assert small.send(("a", 1), ("text", 1), ("other", 1)) == found
    client.hset("T:a", "n", 7)
    assert small.send(("a", -1)) == [("a", 7)]
    assert small.send(("a", 1007)) == [("a", 1007), ("a", 1107)]
    # What is not of the table stays.
    assert hashes_of(client, "T:a") == {
        "k": "a", "n": "1007", "f": "0.1", "flag": "true", "more": "x",
    }  # fmt: skip


def test_reads_renew_the_life_of_rows(in_redis: TestDatabase, client: Any) -> None:
    store = in_redis.store(**{"ttl.seconds": "1000", "ttl.on.read": "true"})
    small = Small(store)
    try:
        for key in ("T:a", "T:b", "T:for ever"):
            client.hset(key, mapping={"n": 1, "flag": "true"})
        client.expire("T:a", 50)
        client.expire("T:b", 50)
        # By the key one row is found.
        small.send(("a", 2))
        assert client.ttl("T:a") > 900
        assert client.ttl("T:b") == 50
        assert small.send(("no", 1)) == [("no", 101)] * 3
        assert client.ttl("T:b") > 900
        assert client.ttl("T:for ever") == -1
    finally:
        small.output.close()


def hashes_of(client: Any, key: str) -> dict[str, str]:
    return {n.decode(): v.decode() for n, v in client.hgetall(key).items()}


def test_a_value_that_no_attribute_has_is_told(in_redis: TestDatabase, client: Any) -> None:
    client.hset("Stock:a:1", mapping={"number": "1.5", "price": "0.123456789"})
    client.hset("Stock:b:1", mapping={"number": str(2**63), "price": "0.1", "sold": "yes"})
    client.hset("Stock:c:x", mapping={"number": "1"})
    rows, has_more = read(in_redis.database, TABLE, EVERY_ROW, 10)
    found = sorted(rows.to_pylist(), key=str)
    assert not has_more
    assert [(row["item"], row["number"]) for row in found] == [("a", None), ("b", None)]
    assert "str 1.5, which no long is" in found[0][UNFIT]
    rows, has_more = read(in_redis.database, TABLE, EVERY_ROW, 1)
    assert (rows.num_rows, has_more) == (1, True)


def test_all_rows_are_found_among_many_keys(in_redis: TestDatabase, client: Any) -> None:
    pipeline = client.pipeline(transaction=False)
    for number in range(5000):
        pipeline.hset(f"Stock:i{number}:1", "number", number)
        pipeline.hset(f"Stocks:i{number}:1", "number", number)
    pipeline.execute()
    rows, _ = read(in_redis.database, TABLE, EVERY_ROW, 10_000)
    assert sorted(row["number"] for row in rows.to_pylist()) == list(range(5000))
    rows, _ = read(in_redis.database, TABLE, Compared("number", Comparison.LESS, 3), 10_000)
    assert rows.num_rows == 3
    keys = tuple((number % 2, f"i{number}") for number in range(2500))
    rows, _ = read(in_redis.database, TABLE, AnyKey(("shelf", "item"), keys), 10_000)
    assert rows.num_rows == 1250


def test_rows_of_any_size_are_read_in_parts(in_redis: TestDatabase, client: Any) -> None:
    for number in range(10):
        client.hset(f"Texts:{number}", "text", f"{number}" * (3 << 20))
    client.set("Texts:x", "no hash")
    sizes: list[int] = []
    evaluate = client.eval

    def counted(*given: Any) -> Any:
        answer = evaluate(*given)
        sizes.append(len(answer))
        return answer

    client.eval = counted
    columns = (
        StoredColumn("k", T.STRING, MergeRule.KEY),
        StoredColumn("text", T.STRING, MergeRule.LATEST),
    )
    hashes = Hashes(StoredTable("Texts", columns))
    listed = [(f"{number}",) for number in range(10)]
    found = list(_rows(client, hashes, [("x",), *listed, ("none",)]))
    assert [(key, text[0], len(text)) for key, text in found] == [
        (key, key, 3 << 20) for (key,) in listed
    ]
    assert len(sizes) == 4
    assert max(sizes) < 10 << 20


LIFE = """
define stream S (k string, n int);
{store} @PrimaryKey('k') define table T (k string, n int);
from S update or insert into T on T.k == k;
"""


@pytest.mark.parametrize("renews", ["false", "true"])
def test_rows_leave_after_their_life(in_redis: TestDatabase, client: Any, renews: str) -> None:
    store = in_redis.store(**{"ttl.seconds": "1000", "ttl.on.update": renews})
    small = Small(store, LIFE)
    try:
        small.send(("a", 1))
        assert 990 < client.ttl("T:a") <= 1000
        client.expire("T:a", 500)
        small.send(("a", 2))
        assert client.hget("T:a", "n") == b"2"
        assert (client.ttl("T:a") > 500) is (renews == "true")
        client.expire("T:a", 0)
        small.send(("a", 3))
        assert client.ttl("T:a") > 900
    finally:
        small.output.close()


def test_a_key_of_another_type_keeps_the_run_whole(
    in_redis: TestDatabase, client: Any, small: Small
) -> None:
    client.hset("T:a", "n", -1)
    client.hset("T:b", "n", -1)
    small.send(("a", 5))
    # Between the read and the write another program puts a text there.
    (writer,) = small.output._rows
    commit = writer.commit

    def late(batches: Any) -> None:
        client.delete("T:b")
        client.set("T:b", "text")
        commit(batches)

    writer.commit = late  # type: ignore[method-assign]
    with pytest.raises(MeshError, match="MESH-S142") as raised:
        small.send(("a", -1), ("b", -1))
    assert "WRONGTYPE" in str(raised.value.detail)
    assert client.hget("T:a", "n") == b"-1"


def writer_of(store: TestDatabase, epoch: int = 1) -> RedisWriter:
    return RedisWriter(store.database, "p", epoch, [TABLE], records=True)


def test_an_older_epoch_and_a_late_script_write_nothing(in_redis: TestDatabase) -> None:
    old, other, new = writer_of(in_redis), writer_of(in_redis), writer_of(in_redis, 2)
    run = ReadRun(1, 5, 10, False, {"Stock": no_rows(TABLE.arrow)})
    old.open()
    other.open()
    other.record(run)
    new.open()
    with pytest.raises(MeshError, match="MESH-S141"):
        old.record(replace(run, number=2))
    with pytest.raises(MeshError, match="MESH-S141"):
        old.open()
    assert new.recorded(0) == [run]
    assert new.recorded(1) == []
    new.position = 7
    with pytest.raises(MeshError, match="MESH-S141"):
        new.record(run)
    new.close()
    other.close()


def test_reads_are_removed_a_day_later_by_runs_alone(in_redis: TestDatabase, client: Any) -> None:
    one = writer_of(in_redis)
    runs = [ReadRun(n, 5, 10, True, {"Stock": no_rows(TABLE.arrow)}) for n in (3, 4, 5)]
    one.record(runs[0])
    one.record(runs[1])
    # The app is away for a weekend, and its replay needs them.
    now_ms = client.zscore("mesh_reads:p", 4)
    client.zadd("mesh_reads:p", {"3": now_ms - 2 * LIFE_MS, "4": now_ms - LIFE_MS + 60_000})
    assert client.ttl("mesh_reads:p:3") > 29 * 86_400
    assert one.recorded(2) == runs[:2]
    one.record(runs[2])
    assert one.recorded(2) == []
    assert one.recorded(3) == runs[1:]
    assert client.zrange("mesh_reads:p", 0, -1) == [b"4", b"5"]
    one.close()


def test_a_server_that_evicts_keys_is_refused(in_redis: TestDatabase, client: Any) -> None:
    text = f"""define stream S (k string); {in_redis.store()} @PrimaryKey('k')
define table T (k string); from S insert into T;"""
    assert store_problem(text) is None
    client.config_set("maxmemory", 10**9)
    client.config_set("maxmemory-policy", "volatile-lru")
    try:
        with pytest.raises(MeshError, match="evicts keys"):
            writer_of(in_redis).open()
        problem = store_problem(text)
        assert problem is not None
        assert problem.code == "MESH-S142"
        client.config_set("maxmemory-policy", "noeviction")
        assert store_problem(text) is None
        # Full: nothing of a run is written.
        client.config_set("maxmemory", 1)
        one = writer_of(in_redis)
        with pytest.raises(MeshError, match="MESH-S142"):
            one.open()
    finally:
        client.config_set("maxmemory", 0)


def test_errors_name_no_password(in_redis: TestDatabase) -> None:
    for away in (replace(in_redis.database, port=1), replace(in_redis.database, password="wrong!")):
        with pytest.raises(MeshError, match="MESH-S140") as raised:
            RedisWriter(away, "p", 1, [TABLE]).open()
        assert PASSWORD not in str(raised.value.to_dict()) + repr(away)
        assert "wrong!" not in str(raised.value.to_dict())


def test_the_certificate_of_a_server_is_verified(
    in_redis: TestDatabase, client: Any, tmp_path: Path
) -> None:
    (tmp_path / "strange").mkdir()
    authority, strange = Authority(tmp_path), Authority(tmp_path / "strange")
    # Of the extra, which the fixture has found.
    from redis.exceptions import ResponseError

    port = free_port()
    for own, host, is_trusted in (
        (authority, "127.0.0.1", True),
        (authority, "db.example", False),
        (strange, "127.0.0.1", False),
    ):
        pair = own.issue(host, hosts=(host,))
        files = "tls-ca-cert-file", str(own.cert), "tls-key-file", str(pair.key)
        try:
            client.config_set("tls-cert-file", str(pair.cert), *files, "tls-auth-clients", "no",
                              "tls-port", port)  # fmt: skip
        except ResponseError as error:
            pytest.skip(f"the server has no TLS: {error}")
        try:
            url = f"rediss://127.0.0.1:{port}/{in_redis.database.database}"
            secure = redis_of(f"{url}?sslrootcert={authority.cert}", None, PASSWORD)
            one = RedisWriter(secure, "p", 1, [TABLE])
            if is_trusted:
                one.open()
            else:
                with pytest.raises(MeshError, match="MESH-S140") as raised:
                    one.open()
                assert "certificate verify failed" in str(raised.value.detail)
            one.close()
        finally:
            client.config_set("tls-port", 0)


def test_a_login_that_may_only_use_its_tables_is_enough(
    in_redis: TestDatabase, client: Any
) -> None:
    # As the documentation has it.
    allowed = ["+@read", "+@write", "+eval", "+select"]
    client.acl_setuser(
        "shop", enabled=True, passwords=["+shop"], reset=True, commands=allowed,
        keys=["mesh_*", "Stock:*"],
    )  # fmt: skip
    one = RedisWriter(replace(in_redis.database, username="shop", password="shop"), "p", 1, [TABLE])
    one.open()
    assert one.rows(TABLE).num_rows == 0
    one.close()


@pytest.mark.usefixtures("ended_partitions")
def test_on_demand_queries_read_the_rows_of_redis(
    in_redis: TestDatabase, client: Any, tmp_path: Path
) -> None:
    node = Node(tmp_path / "read", TABLES.format(store=in_redis.store(kept="false")))
    node.run(TEN_MS, ("IBM", 1.5, 3, 0), ("WSO2", 2.5, 4, 0))
    client.hset("Trades:other:s", mapping={"total": "9", "price": "0.5"})
    query = "select symbol, total, price order by symbol"
    rows = [["IBM", 3, 1.5], ["WSO2", 4, 2.5], ["other:s", 9, 0.5]]
    assert node.ask(f"from Trades {query}") == rows
    assert node.ask(f"from Trades on symbol == 'other:s' {query}") == rows[2:]
    assert node.ask(f"from Trades on total > 3L and price < 2.0 {query}") == rows[2:]


@pytest.mark.parametrize("kind", ["redis", "sqlite"])
def test_a_database_that_has_lost_all_gets_the_rows_of_the_state(
    redis: DatabaseServer, tmp_path: Path, kind: str
) -> None:
    running = redis if kind == "redis" else None
    store, other = (new_database(running, tmp_path, name) for name in ("lost", "empty"))
    life = Life(store, events_of(60, 7))
    life.run(40, keeps=True)
    before = life.in_database()
    assert sum(map(len, before)) > 5
    life.output.close()
    # The same tables in a database with nothing.
    fresh = Life(other, life.events)
    fresh.kept = (40, stored(life.executor.snapshot()))
    # A writer that has claimed the marker may end before the rows are there.
    fresh.end()
    fresh.output.continue_from(fresh.executor)
    assert fresh.in_database() == before
    fresh.run(60, keeps=True)
    assert fresh.in_database() == fresh.in_state()
    fresh.output.close()
