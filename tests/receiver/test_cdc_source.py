"""Changes by the source ``cdc``: what a log says, what it lacks, and how long it is kept."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mesh.connect.contract import Context, UnavailableError
from mesh.control.snapshot import ClusterSnapshot, Revisioned
from mesh.model.cluster import AppRecord, Assignment, InstanceState
from mesh.plan.build import plan
from mesh.receiver.types.cdc_source import CdcSource
from mesh.worker.agent import was_removed
from tests.support.cdc import ACCESS, MODES, execute, new
from tests.support.connectors import staged
from tests.support.databases import PASSWORD, USER
from tests.support.pages import every_passage

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.support.databases import DatabaseServer

TOAST = "insert into t values (1, repeat('x', 5000), 'first')"
UPDATE = "update t set note = 'again' where id = 1"


def test_an_unchanged_large_value_is_that_of_the_row(
    postgresql: DatabaseServer, tmp_path: Path
) -> None:
    case = new(postgresql, tmp_path)
    execute(
        case.database,
        "create table t (id int primary key, doc text, note text)",
        "alter table t alter column doc set storage external", TOAST,
    )  # fmt: skip
    lenient = "type='keyvalue', fail.on.missing.attribute='false'"
    options = {"mapping": lenient, "operation": "update,delete"}

    def found(attributes: str, *changes: str) -> list[Any]:
        return case.events(attributes, *changes, **options)

    is_unchanged = (
        'attribute "doc" is unchanged, and the log has no such large value of it; '
        "it has it after: alter table t replica identity full"
    )
    assert found("id int, doc string", UPDATE) == [is_unchanged]
    assert found("id int, note string, before_id int", UPDATE) == [
        {"id": 1, "note": "again", "before_id": 1}
    ], "the other attributes are known"
    delete = "delete from t", TOAST
    (reason,) = found("before_id int, before_note string", *delete)
    assert reason.startswith('attribute "before_note" is not in the log')
    assert found("before_id int", *delete) == [{"before_id": 1}]
    execute(case.database, "alter table t replica identity full")
    both = found("doc string, before_doc string, before_note string", UPDATE)
    assert both == [{"doc": "x" * 5000, "before_doc": "x" * 5000, "before_note": "first"}]


def test_a_partitioned_table_is_one_table(postgresql: DatabaseServer, tmp_path: Path) -> None:
    case = new(postgresql, tmp_path)
    execute(
        case.database,
        "create table t (id int, k text) partition by range (id)",
        "create table t_low partition of t for values from (0) to (10)",
    )
    added = "create table t_high partition of t for values from (10) to (20)"
    found = case.events(
        "id int, k string", "insert into t values (1, 'a')", added,
        "insert into t values (11, 'b')", "insert into t_low values (2, 'c')",
    )  # fmt: skip
    assert [event["id"] for event in found] == [1, 11, 2]
    alone = case.events("id int", "insert into t values (3, 'd'), (12, 'e')", table_name="t_low")
    assert alone == [{"id": 3}]


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (["create view t as select 1 as id"], "is a view"),
        (["create table t (id int)", "create table u () inherits (t)"], "inherit from it"),
        ([], 'there is no table "t"'),
    ],
)
def test_what_has_no_log_of_its_own_is_refused(
    postgresql: DatabaseServer, tmp_path: Path, statements: list[str], reason: str
) -> None:
    case = new(postgresql, tmp_path)
    execute(case.database, *statements)
    with pytest.raises(UnavailableError, match=reason):
        case.events("id int")


def test_a_table_without_a_key_stays_open_to_others(
    postgresql: DatabaseServer, tmp_path: Path
) -> None:
    """PostgreSQL refuses updates of a table without a key whose updates are published."""
    case = new(postgresql, tmp_path)
    execute(case.database, "create table t (id int, note text)")
    changes = ("insert into t values (1, 'a')", "update t set note = 'b'", "delete from t")
    assert case.events("id int, note string", *changes) == [{"id": 1, "note": "a"}]
    with pytest.raises(UnavailableError, match=r"has no primary key.* replica identity full"):
        case.events("id int", *changes, operation="insert,update")
    execute(case.database, *changes, "alter table t replica identity full")
    found = case.events("id int", *changes, operation="update,delete")
    assert len(found) == 2
    parts = "create table t_low partition of p for values from (0) to (10)"
    execute(case.database, "create table p (id int) partition by range (id)", parts)
    with pytest.raises(UnavailableError, match="has no primary key"):
        case.events("id int", table_name="p", operation="delete")


PERIOD = "period for system_time (a, b)) with system versioning"
VERSIONED = {
    "hidden": "create table t (id int primary key, v int) with system versioning",
    "named": "create table t (id int primary key, v int, a timestamp(6) generated always as row"
             f" start, b timestamp(6) generated always as row end, {PERIOD}",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", VERSIONED)
def test_the_history_of_a_versioned_table_is_no_change(
    mariadb: DatabaseServer, tmp_path: Path, kind: str
) -> None:
    pytest.importorskip("pymysqlreplication")
    case = new(mariadb, tmp_path)
    execute(case.database, VERSIONED[kind])
    mapping = (
        "type='json', fail.on.missing.attribute='false',"
        " @attributes(v='v', old='before_v', what='trp:operation')"
    )
    found = case.events(
        "v int, old int, what string", "insert into t (id, v) values (1, 1)", "update t set v = 2",
        "delete from t", operation="insert,update,delete", mapping=mapping,
    )  # fmt: skip
    assert found == [
        {"v": 1, "old": None, "what": "insert"},
        {"v": 2, "old": 1, "what": "update"},
        {"v": None, "old": 2, "what": "delete"},
    ]
    assert case.events("id int", "insert into t (id, v) values (1, 1)", "update t set v = 2",
                       "delete from t") == [{"id": 1}]  # fmt: skip


def test_statements_in_the_log_are_named(mariadb: DatabaseServer, tmp_path: Path) -> None:
    pytest.importorskip("pymysqlreplication")
    case = new(mariadb, tmp_path)
    execute(case.database, "create table t (id int)", "create table other (id int)")
    found = case.events(
        "id int", "set session transaction isolation level repeatable read",
        "set binlog_format = 'STATEMENT'", "insert into t values (1)",
        "insert into other values (1)", "set binlog_format = 'ROW'", "insert into t values (2)",
    )  # fmt: skip
    reason, event = found
    assert reason.startswith("the log has a statement instead of rows")
    assert event == {"id": 2}
    execute(
        case.database, "drop table t",
        VERSIONED["named"].replace("timestamp(6)", "bigint unsigned"),
    )  # fmt: skip
    with pytest.raises(UnavailableError, match="versioned by transactions"):
        case.events("id int")


async def test_the_slot_of_an_idle_table_follows_the_log(
    postgresql: DatabaseServer, tmp_path: Path
) -> None:
    case = new(postgresql, tmp_path)
    execute(case.database, "create table t (id int)", "create table busy (k text)")
    options = {
        "url": case.database.url, "username": USER, "password": PASSWORD, "table.name": "t",
        "mode": "listening", "polling.interval": 1,
    }  # fmt: skip
    context = Context("Idle", "S", options, instance="Idle-1")
    # The server notes in its log from where a slot has to read on, at a checkpoint for example.
    grow = ["insert into busy select repeat('x', 1000) from generate_series(1, 3000)", "checkpoint"]
    like = "from pg_replication_slots where slot_name like 'mesh_idle_s_%'"
    kept = f"select pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) {like}"
    source = CdcSource()
    await source.open(context, None)
    try:
        first = await source.read()
        assert first is not None
        execute(case.database, *grow)
        before = case.database.rows(kept)
        for _ in range(2):
            assert await source.read() is None
            execute(case.database, *grow[1:])
        assert before[0][0] > 3_000_000 > case.database.rows(kept)[0][0]
        execute(case.database, "insert into t values (1)")
        found = await source.read()
        assert found is not None
        assert list(found.payloads) == [b'{"id":1}'], "what comes later is read"
        # A crash before the position is stored: the change is read again.
        await source.close()
        source = CdcSource()
        await source.open(context, first.position)
        again = await source.read()
        assert again is not None
        assert list(again.payloads) == list(found.payloads)
        execute(case.database, "alter table t rename to u")
        execute(case.database, "insert into u values (2)")
        renamed = await source.read()
        assert renamed is not None
        assert list(renamed.payloads) == [b'{"id":2}']
        execute(case.database, "drop table u")
        with pytest.raises(UnavailableError, match='table "t" was dropped'):
            await source.read()
    finally:
        await source.close()
        await source.remove(context)
    assert case.database.rows(f"select slot_name {like}") == []
    assert case.database.rows("select pubname from pg_publication") == []
    with pytest.raises(UnavailableError, match='no table "t"'):
        await source.open(context, first.position)
    execute(case.database, "create table t (id int)")
    with pytest.raises(UnavailableError, match="is gone, and with it"):
        await source.open(context, first.position)
    await source.close()


@pytest.mark.parametrize("mode", MODES)
def test_names_of_tables_may_have_signs_of_sql(
    postgresql: DatabaseServer, tmp_path: Path, mode: str
) -> None:
    case = new(postgresql, tmp_path)
    execute(case.database, 'create table "a:b %s c" (id int primary key, n int)')
    insert = 'insert into "a:b %s c" values (1, 2)'
    found = case.events("id int, n int", insert, mode=mode, table_name="a:b %s c")
    assert found == [{"id": 1, "n": 2}]


async def test_a_server_without_a_free_slot_is_named_with_the_remedy(
    postgresql: DatabaseServer, tmp_path: Path
) -> None:
    case = new(postgresql, tmp_path)
    execute(case.database, "create table t (id int primary key)")
    options = {
        "url": case.database.url, "username": USER, "password": PASSWORD, "table.name": "t",
        "mode": "listening", "polling.interval": 1,
    }  # fmt: skip
    each = "from generate_series(1, current_setting('max_replication_slots')::int) as n"
    execute(case.database, f"select pg_create_physical_replication_slot('full_' || n) {each}")
    context, source = Context("Full", "S", options, instance="Full-1"), CdcSource()
    try:
        with pytest.raises(UnavailableError, match="slots are in use, and each source has one"):
            await source.open(context, None)
    finally:
        await source.close()
        execute(case.database, f"select pg_drop_replication_slot('full_' || n) {each}")
    # The operator has made room: each source has one of its own.
    for name in ("One", "Two"):
        await source.open(Context(name, "S", options, instance=f"{name}-1"), None)
        await source.close()
    query = "select count(*) from pg_replication_slots where slot_name like 'mesh_%_s_%'"
    assert case.database.rows(query) == [(2,)]
    for name in ("One", "Two"):
        await source.remove(Context(name, "S", options, instance=f"{name}-1"))


def test_generated_columns_of_postgresql_are_not_in_the_log(
    postgresql: DatabaseServer, tmp_path: Path
) -> None:
    case = new(postgresql, tmp_path)
    execute(case.database, "create table t (id int, twice int generated always as (id * 2) stored)")
    lenient = {"mapping": "type='keyvalue', fail.on.missing.attribute='false'"}
    row = "insert into t values (1)"
    (reason,) = case.events("id int, twice int", row, **lenient)
    assert reason.startswith('attribute "twice" is a generated column')
    assert case.events("id int", row, **lenient) == [{"id": 1}]
    execute(case.database, "delete from t")
    assert case.events("twice int", row, mode="polling") == [{"twice": 2}]


@pytest.mark.slow
def test_a_change_without_all_columns_has_no_nulls(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """A session may have another ``binlog_row_image`` than the server."""
    pytest.importorskip("pymysqlreplication")
    case = new(mariadb, tmp_path)
    rows = "insert into t values (1, 'x', 'y'), (2, 'x', 'y')"
    execute(case.database, "create table t (id int primary key, a text, b text)", rows)
    lenient = "type='keyvalue', fail.on.missing.attribute='false'"
    # One transaction, in which the setting holds for its session.
    update = "set statement binlog_row_image = 'MINIMAL' for update t set a = 'z' where id = 1"
    for attributes, expected in (
        ("a string", {"a": "z"}),
        ("before_id int", {"before_id": 1}),
        ("id int, b string", 'attribute "id" is not in the log: the session'),
        ("before_a string", 'attribute "before_a" is not in the log: the session'),
    ):
        execute(case.database, "update t set a = 'x'")
        (found,) = case.events(attributes, update, operation="update", mapping=lenient)
        assert found == expected or str(found).startswith(str(expected))


@pytest.mark.parametrize("server", ["postgresql", "mariadb"])
@pytest.mark.parametrize("mode", MODES)
async def test_columns_that_come_and_go_are_followed(
    request: pytest.FixtureRequest, tmp_path: Path, server: str, mode: str
) -> None:
    if server == "mariadb":
        pytest.importorskip("pymysqlreplication")
    database = new(request.getfixturevalue(server), tmp_path).database
    execute(database, "create table t (gone int, id int primary key)")
    login = {"url": database.url, "username": USER, "password": PASSWORD}
    more = {"table.name": "t", "polling.column": "id", "mode": mode, "polling.interval": 10}
    source = CdcSource()
    context = Context("A", "S", {**login, **more}, ACCESS, instance=f"A-{mode}")

    async def rows(*changes: str) -> list[Any]:
        execute(database, *changes)
        found: list[bytes] = []
        while (batch := await source.read()) is not None:
            found += batch.payloads
            await source.committed(batch.position)
        return [json.loads(one) for one in found]

    try:
        await source.open(context, None)
        await source.read()
        assert await rows("insert into t values (9, 1)") == [{"gone": 9, "id": 1}]
        changes = ("alter table t drop column gone", "alter table t add column a text")
        assert await rows(*changes, "insert into t values (2, 'x')") == [{"id": 2, "a": "x"}]
        assert await rows("insert into t values (3, 'y')") == [{"id": 3, "a": "y"}]
    finally:
        await source.close()
        await source.remove(context)


def test_changes_whose_columns_have_no_names_are_refused_alone(
    mariadb: DatabaseServer, tmp_path: Path
) -> None:
    pytest.importorskip("pymysqlreplication")
    case = new(mariadb, tmp_path)
    execute(case.database, "create table t (gone int, id int primary key, v text)")
    found = case.events(
        "id int, v string",
        "insert into t values (9, 1, 'a'), (9, 2, 'b')",
        "alter table t drop column gone",
        "insert into t values (3, 'c')",
        "alter table t modify column v varchar(9) first",
        "insert into t values ('d', 4)",
        "alter table t add column n int",
        "insert into t values ('e', 5, 6)",
    )
    assert found.pop(2).startswith("the table has lost or moved columns since this change")
    assert found == [{"id": n, "v": v} for n, v in ((1, "a"), (2, "b"), (4, "d"), (5, "e"))]


def test_a_view_of_mariadb_has_no_log(mariadb: DatabaseServer, tmp_path: Path) -> None:
    pytest.importorskip("pymysqlreplication")
    case = new(mariadb, tmp_path)
    execute(
        case.database, "create table b (id int primary key)", "create view t as select id from b"
    )
    with pytest.raises(UnavailableError, match='"t" is a view, which has no log'):
        case.events("id int")
    assert case.events("id int", "insert into b values (1)", mode="polling") == [{"id": 1}]


def test_mariadb_logs_neither_cascades_nor_truncation(
    mariadb: DatabaseServer, tmp_path: Path
) -> None:
    pytest.importorskip("pymysqlreplication")
    case = new(mariadb, tmp_path)
    execute(
        case.database,
        "create table parent (id int primary key)",
        "create table t (id int, twice int as (id * 2) virtual,"
        " foreign key (id) references parent (id) on delete cascade)",
        "insert into parent values (1), (2)", "insert into t (id) values (1), (2)",
    )  # fmt: skip
    found = case.events(
        "before_id int, before_twice int", "delete from parent where id = 1",
        "delete from t where id = 2", "truncate table t", operation="delete",
    )  # fmt: skip
    assert found == [{"before_id": 2, "before_twice": 4}]


@pytest.mark.slow
@pytest.mark.nats
async def test_an_app_that_is_removed_leaves_no_slot(
    nats_server: NatsServer, postgresql: DatabaseServer, tmp_path: Path
) -> None:
    case = new(postgresql, tmp_path)
    execute(case.database, "create table t (id int)")
    login = f"url='{case.database.url}', username='{USER}', password='{PASSWORD}'"
    text = (
        f"@App:name('Shop')\n@source(type='cdc', {login}, table.name='t', @map(type='keyvalue'))\n"
        "define stream Orders (id int);\nfrom Orders select id insert into T;"
    )
    # As the statement of docs/connectors.md finds it.
    (shown,) = (one for one in every_passage() if "pg_drop_replication_slot" in one.first)
    (where,) = re.findall(r"where [^;]*", shown.text)
    slots = f"select slot_name from pg_replication_slots {where}"
    async with staged(nats_server, text) as stage:
        for is_removed in (False, True):
            instance = stage.start("receiver-Orders", 1 + is_removed)
            await stage.until_running(instance)
            assert len(await asyncio.to_thread(case.database.rows, slots)) == 1
            await instance.stop(is_removed=is_removed)
            assert instance.status().state is InstanceState.STOPPED
            kept = await asyncio.to_thread(case.database.rows, slots)
            assert len(kept) == (0 if is_removed else 1), "a stop alone keeps it"
    assert case.database.rows("select pubname from pg_publication") == []


def test_only_what_an_app_has_lost_is_removed() -> None:
    spec = plan("@App:name('A') define stream S (n int); from S select n insert into T;").spec
    group = spec.groups[0].name
    record = AppRecord(spec, "inc", 0)
    one = Assignment("A-g-1", "A", group, 1, "inc", "w1", 1, lease_revision=1)

    def removed(known: AppRecord | None, assignment: Assignment = one) -> bool:
        apps = () if known is None else (Revisioned(known, 1, 0.0),)
        return was_removed(assignment, ClusterSnapshot(0.0, apps=apps))

    assert removed(replace(record, deleting=True))
    assert removed(record, replace(one, group="earlier"))
    assert not removed(record), "it moves"
    assert not removed(None), "its record is not known"
    assert not removed(replace(record, incarnation="next", deleting=True))
