"""A writer to Redis, and the server, that end at any step: the rows are those of a calm run.

Each attempt is a process of its own, which kills itself at a step; the next one continues from what
was stored.  A command whose connection ends has either outcome.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mesh.errors import MeshError
from mesh.spark import partition_task
from mesh.spark.store_output import StoreOutput
from mesh.store import redis_writer
from mesh.store.redis_client import connected
from tests.store.test_crashes import DEADLY, attempt, die, node_of, play
from tests.store.test_read_again import Failing
from tests.store.test_tables import events_of
from tests.support import databases
from tests.support.commit_proxy import CommitProxy
from tests.support.databases import TestDatabase, new_database
from tests.support.trades import end_partitions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import DatabaseServer

STEPS = ("before the script", "after the script", "after the commit", "after the state")
Content = dict[str, dict[bytes, bytes]]


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    end_partitions()


def content(store: TestDatabase) -> Content:
    """All rows, and the marker's position."""
    client = connected(store.database)
    try:
        found = {key.decode(): client.hgetall(key) for key in client.scan_iter(_type="hash")}
    finally:
        client.close()
    for one in found.values():
        one.pop(b"epoch", None)
    return found


def arm(step: str) -> None:
    """Let this process end at a step of its next run that writes."""
    commit, kept = StoreOutput.commit, partition_task.PartitionTask.end_batch
    changes = redis_writer._changes

    def changed(*given: Any) -> Any:
        if step == "before the script":
            die()
        return changes(*given)

    def moved(self: Any, answer: int) -> None:
        if step == "after the script":
            die()

    def committed(self: StoreOutput, since_ms: int = 0) -> None:
        commit(self, since_ms)
        if step == "after the commit" and self.has_committed:
            die()

    def keep(self: Any, *given: Any) -> None:
        kept(self, *given)
        if step == "after the state":
            die()

    vars(redis_writer)["_changes"] = changed
    redis_writer.RedisWriter._moved = moved  # type: ignore[method-assign]
    StoreOutput.commit = committed  # type: ignore[method-assign]
    partition_task.PartitionTask.end_batch = keep  # type: ignore[assignment, method-assign]


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("step", STEPS)
def test_a_process_that_is_killed_at_any_step_changes_nothing(
    redis: DatabaseServer, tmp_path: Path, step: str
) -> None:
    store, other = (new_database(redis, tmp_path, name) for name in ("killed", "calm"))
    play(node_of(tmp_path / "calm", other, "table"))
    end_partitions()
    calm = content(other)
    for deadly in DEADLY:
        node = partial(node_of, tmp_path / f"killed{deadly}", store, "table")

        def armed(number: int, deadly: int = deadly) -> None:
            if number == deadly:
                arm(step)

        assert attempt(node, armed) == signal.SIGKILL
        assert attempt(node, lambda number: None) == 0
        assert content(store) == calm, deadly
        client = connected(store.database)
        client.flushdb()
        client.close()


@pytest.fixture
def proxied(
    redis: DatabaseServer, tmp_path: Path
) -> Iterator[tuple[TestDatabase, TestDatabase, CommitProxy]]:
    """A database, the same through a relay, and the relay, which cuts the script with rows."""
    with relayed(redis, tmp_path) as found:
        yield found


@contextmanager
def relayed(
    server: DatabaseServer, directory: Path
) -> Iterator[tuple[TestDatabase, TestDatabase, CommitProxy]]:
    store = new_database(server, directory, "")
    # No other script decodes rows.
    proxy = CommitProxy(server.port, b"cjson")
    url = store.url.replace(f":{server.port}/", f":{proxy.port}/")
    try:
        yield store, TestDatabase(url, replace(store.database, port=proxy.port)), proxy
    finally:
        proxy.close()


@pytest.mark.parametrize("is_written", [True, False], ids=["written", "lost"])
def test_a_connection_that_is_cut_in_the_script_has_either_outcome(
    proxied: tuple[TestDatabase, TestDatabase, CommitProxy],
    in_redis: TestDatabase,
    tmp_path: Path,
    is_written: bool,
) -> None:
    store, through, proxy = proxied
    play(node_of(tmp_path / "calm", in_redis, "table"))
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
    assert content(store) == content(in_redis)


@pytest.mark.slow
def test_a_server_that_is_killed_while_rows_are_written_changes_nothing(
    in_redis: TestDatabase, tmp_path: Path
) -> None:
    play(node_of(tmp_path / "calm", in_redis, "table"))
    end_partitions()
    with databases.redis() as own, relayed(own, tmp_path) as (store, through, proxy):
        node = node_of(tmp_path / "killed", through, "table")
        killed: list[int] = []

        def armed(number: int) -> None:
            if number in (3, 9, 14) and number not in killed:
                killed.append(number)
                # It is killed before the script, or soon after it.
                proxy.arm(is_written=True, meanwhile=own.kill if number == 9 else lambda: None)

        for _ in range(3):
            with pytest.raises(MeshError, match="MESH-S140"):
                play(node, armed)
            end_partitions()
            own.kill()
            own.start()
        play(node, armed)
        assert killed == [3, 9, 14]
        assert content(store) == content(in_redis)


class InRedis(Failing):
    """As ``Failing``; the other program writes hashes."""

    def change(self, number: int) -> None:
        if number > self.foreign:
            self.foreign = number
            client = connected(self.store.database)
            row = {"n": number % 5, "v": float(number % 3 - 1), "flag": "1"}
            client.hset(f"T:{'abcE'[number % 4]}", mapping=row)
            client.delete(f"T:{'bcEa'[number % 4]}")
            client.close()

    def table_rows(self) -> list[Any]:
        return [content(self.store)]


@pytest.mark.slow
@pytest.mark.parametrize("others_write", [False, True])
def test_what_was_read_is_read_again_after_a_failure(
    redis: DatabaseServer, tmp_path: Path, others_write: bool
) -> None:
    """Runs that end anywhere, and are repeated in other cuts while another program writes."""
    chance = np.random.default_rng(5)
    events = events_of(24, 0)
    calm, life = (InRedis(new_database(redis, tmp_path, name), events) for name in ("calm", "ends"))
    try:
        for one in (calm, life):
            one.run(0)
        while calm.at < len(events):
            count, again, writes, keeps = chance.integers(0, [5, 4, 2, 2]).tolist()
            stop = min(calm.at + 1 + count, len(events))
            calm.run(stop)
            life.run(stop, writes=bool(writes) or not again, keeps=bool(keeps))
            if again:
                life.end()
                if others_write:
                    life.change(stop)
                while life.at < stop:
                    life.run(min(life.at + again, stop))
        assert all(len(found) == 1 for found in life.rows.values()), life.rows
        assert life.epoch > 4
        if not others_write:
            assert life.rows == calm.rows
            assert life.table_rows() == calm.table_rows()
    finally:
        calm.output.close()
        life.output.close()
