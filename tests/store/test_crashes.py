"""A writer that ends at any step of the marker transaction: the tables are those of a calm run.

Each attempt is a process of its own, which kills itself at a step; the next one continues from what
was stored.  A connection that ends in COMMIT has either outcome.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from mesh.errors import MeshError
from mesh.model.stored import Backend
from mesh.spark import partition_task
from mesh.spark.store_output import StoreOutput
from mesh.store import writer
from mesh.store.engine import engine_of
from tests.support.commit_proxy import CommitProxy
from tests.support.databases import DatabaseServer, TestDatabase, new_database
from tests.support.trades import APP, TEN_MS, Node, end_partitions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ended_partitions")

#: Runs: the clock, and trades; time alone passes in some.
RUNS: tuple[tuple[int, list[Any]], ...] = tuple(
    (
        TEN_MS + 700 * number,
        [
            (symbol, 0.5 * number, number + place, TEN_MS + 911 * number - 4000 * place)
            for place, symbol in enumerate(("IBM", "WSO2", "größe")[: number % 4])
        ],
    )
    for number in range(1, 25)
)
#: Runs that end in the middle: one that writes seconds, and one that writes all durations.
DEADLY = (5, 15)
STEPS = (
    "before the marker",
    "after the marker",
    "before the commit",
    "after the commit",
    "after the state",
)


_numbers = itertools.count(1)
#: Amounts that a second time would double, and rows that go and come again.
TABLES = """@App:name('TradeApp')
define stream TradeStream (symbol string, price double, quantity long, timestamp long);
{store} @PrimaryKey('symbol')
define table Trades (symbol string, total long, number int, price double);
from TradeStream select symbol, quantity as total, 1 as number, price update or insert into Trades
set Trades.total = Trades.total + total, Trades.number = Trades.number + 1, Trades.price = price
on Trades.symbol == symbol;
from TradeStream[quantity % 5L == 0L] select symbol delete Trades on Trades.symbol == symbol;
"""
DURATIONS = ("SECONDS", "MINUTES", "HOURS", "DAYS", "MONTHS", "YEARS")
#: Values of sets are rows of their own.
DISTINCT = APP.replace("sum(quantity)", "distinctCount(price) as prices, sum(quantity)")
APPS = {
    "aggregation": (APP, [f"TradeAggregation_{n}" for n in DURATIONS]),
    "distinct": (
        DISTINCT,
        [f"TradeAggregation_{n}{part}" for n in DURATIONS for part in ("", "_SET_price")],
    ),
    "table": (TABLES, ["Trades"]),
}


def node_of(directory: Path, store: TestDatabase, kind: str = "aggregation") -> Node:
    return Node(directory, APPS[kind][0].format(store=store.store()))


def play(node: Node, before: Callable[[int], None] = lambda number: None) -> None:
    """Play the runs after the stored position, which the broker's time tells."""
    for number, (now_ms, trades) in enumerate(RUNS):
        (_, _, done_ms) = node.position.streams[0]
        if now_ms > done_ms:
            before(number)
            node.run(now_ms, *trades)
    node.run(TEN_MS + 60_000)


def content(store: TestDatabase, kind: str = "aggregation") -> dict[str, list[tuple[Any, ...]]]:
    """The rows of all tables, and the marker's position."""
    quote = "`" if store.database.backend is Backend.MYSQL else '"'
    found = {
        name: sorted(store.rows(f"select * from {quote}{name}{quote}"), key=str)
        for name in APPS[kind][1]
    }
    marker = "select producer, position from mesh_marker order by producer"
    return {**found, "marker": store.rows(marker)}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(step: str, store: TestDatabase) -> None:
    """Let this process end at a step of its next transaction."""
    engine = engine_of(store.database)

    def on_statement(_c: Any, _u: Any, statement: str, *_more: Any) -> None:
        is_marker = "UPDATE mesh_marker" in statement and "position" in statement.split("WHERE")[0]
        if step == "before the marker" and is_marker:
            die()
        if (
            step == "after the marker"
            and statement.startswith("INSERT INTO")
            and ("mesh_marker" not in statement)
        ):
            die()

    sa.event.listen(engine, "before_cursor_execute", on_statement)
    committed = StoreOutput.commit
    kept = partition_task.PartitionTask.end_batch

    def commit(self: StoreOutput, since_ms: int = 0) -> None:
        if step == "before the commit":
            sa.event.listen(engine, "commit", lambda _c: die())
        committed(self, since_ms)
        if step == "after the commit" and self.has_committed:
            die()

    def keep(self: Any, *given: Any) -> None:
        kept(self, *given)
        if step == "after the state":
            die()

    StoreOutput.commit = commit  # type: ignore[method-assign]
    partition_task.PartitionTask.end_batch = keep  # type: ignore[assignment, method-assign]


def attempt(node: Callable[[], Node], before: Callable[[int], None]) -> int:
    """Play in a process of its own, which may end in any run; the signal that ended it."""
    child = os.fork()
    if not child:
        try:
            # The rows of the last durations go through COPY.
            vars(writer)["COPY_ROWS"] = 2
            play(node(), before)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0, "an error in the process"
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


@pytest.fixture
def other(store: TestDatabase, request: pytest.FixtureRequest, tmp_path: Path) -> TestDatabase:
    """Another database beside ``store``, of the same server."""
    return new_database(server_of(store, request), tmp_path, "calm")


def server_of(store: TestDatabase, request: pytest.FixtureRequest) -> DatabaseServer | None:
    names = {Backend.POSTGRESQL: "postgresql", Backend.MYSQL: "mariadb"}
    name = names.get(store.database.backend)
    found: DatabaseServer | None = None if name is None else request.getfixturevalue(name)
    return found


@pytest.mark.extended
@pytest.mark.parametrize("kind", APPS)
def test_a_process_that_is_killed_at_any_step_changes_nothing(
    store: TestDatabase, other: TestDatabase, tmp_path: Path, kind: str
) -> None:
    play(node_of(tmp_path / "calm", other, kind))
    end_partitions()
    killed = 0
    for step in STEPS:
        for deadly in DEADLY:

            def node() -> Node:
                return node_of(tmp_path / "killed", store, kind)

            def armed(number: int, step: str = step, deadly: int = deadly) -> None:
                if number == deadly:
                    arm(step, store)

            killed += attempt(node, armed) == signal.SIGKILL
            assert attempt(node, lambda number: None) == 0
            assert content(store, kind) == content(other, kind), (step, deadly)
            # The next step is that of another life.
            (tmp_path / "killed").rename(tmp_path / f"{step}-{deadly}")
            clear(store, kind)
    assert killed == len(STEPS) * len(DEADLY)


def clear(store: TestDatabase, kind: str) -> None:
    """Empty all tables."""
    quote = "`" if store.database.backend is Backend.MYSQL else '"'
    with engine_of(store.database).begin() as connection:
        for name in (*(f"{quote}{name}{quote}" for name in APPS[kind][1]), "mesh_marker"):
            connection.execute(sa.text(f"DELETE FROM {name}"))


@pytest.fixture(
    params=[Backend.POSTGRESQL, pytest.param(Backend.MYSQL, marks=pytest.mark.thorough)]
)
def proxied(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[TestDatabase, TestDatabase, CommitProxy]]:
    """A database, the same through a relay, and the relay."""
    name = "postgresql" if request.param is Backend.POSTGRESQL else "mariadb"
    server: DatabaseServer = request.getfixturevalue(name)
    store = new_database(server, tmp_path, f"proxied{next(_numbers)}")
    proxy = CommitProxy(server.port)
    url = store.url.replace(f":{server.port}/", f":{proxy.port}/")
    yield store, TestDatabase(url, replace(store.database, port=proxy.port)), proxy
    proxy.close()


@pytest.mark.extended
@pytest.mark.parametrize("is_written", [True, False], ids=["written", "lost"])
@pytest.mark.parametrize("kind", APPS)
def test_a_process_that_is_killed_in_commit_changes_nothing(
    proxied: tuple[TestDatabase, TestDatabase, CommitProxy],
    tmp_path: Path,
    kind: str,
    is_written: bool,
) -> None:
    """It is killed while the COMMIT is on its way, and the database receives this or does not."""
    store, through, proxy = proxied
    calm = new_database(None, tmp_path, "calm")
    play(node_of(tmp_path / "calm", calm, kind))
    end_partitions()
    told, tell = os.pipe()

    def armed(number: int) -> None:
        if number == DEADLY[0]:
            os.write(tell, str(os.getpid()).encode())
            # Until the relay is armed.
            os.read(ready, 1)

    ready, go = os.pipe()

    def arm_proxy() -> None:
        child = int(os.read(told, 20))
        proxy.arm(is_written=is_written, meanwhile=lambda: os.kill(child, signal.SIGKILL))
        os.write(go, b"!")

    watching = threading.Thread(target=arm_proxy)
    watching.start()
    assert attempt(lambda: node_of(tmp_path / "cut", through, kind), armed) == signal.SIGKILL
    watching.join()
    for end in (told, tell, ready, go):
        os.close(end)
    assert attempt(lambda: node_of(tmp_path / "cut", through, kind), lambda number: None) == 0
    assert proxy.cuts == 1
    assert content(store, kind) == content(calm, kind)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("is_written", [True, False], ids=["written", "lost"])
def test_a_connection_that_is_cut_in_commit_on_the_wire_has_either_outcome(
    proxied: tuple[TestDatabase, TestDatabase, CommitProxy],
    tmp_path: Path,
    is_written: bool,
) -> None:
    store, through, proxy = proxied
    calm = new_database(None, tmp_path, "calm")
    play(node_of(tmp_path / "calm", calm, "table"))
    end_partitions()
    node = node_of(tmp_path / "cut", through, "table")

    def armed(number: int) -> None:
        if number == DEADLY[0] and not proxy.cuts:
            proxy.arm(is_written=is_written)

    with pytest.raises(MeshError, match="MESH-S140"):
        play(node, armed)
    end_partitions()
    play(node)
    assert proxy.cuts == 1
    assert content(store, "table") == content(calm, "table")


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("is_written", [True, False], ids=["written", "lost"])
def test_a_connection_that_is_cut_in_commit_has_either_outcome(
    store: TestDatabase,
    other: TestDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_written: bool,
) -> None:
    play(node_of(tmp_path / "calm", other))
    end_partitions()
    node = node_of(tmp_path / "cut", store)
    dialect = engine_of(store.database).dialect
    do_commit, do_rollback = dialect.do_commit, dialect.do_rollback
    cuts = [0]

    def cut(connection: Any) -> None:
        if cuts[0] != 1:
            do_commit(connection)
            return
        cuts[0] = 2
        (do_commit if is_written else do_rollback)(connection)
        reason = dialect.loaded_dbapi.OperationalError("connection lost")
        raise sa.exc.OperationalError("COMMIT", {}, reason, connection_invalidated=True)

    monkeypatch.setattr(dialect, "do_commit", cut)

    def arm_cut(number: int) -> None:
        if number in DEADLY and cuts[0] == 0:
            # The connection is open, so the next commit is that of rows.
            cuts[0] = 1

    with pytest.raises(MeshError, match="MESH-S140"):
        play(node, arm_cut)
    end_partitions()
    play(node)
    assert cuts[0] == 2
    assert content(store) == content(other)
