"""Slots on other machines: TLS to the session, states where all machines reach them."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from mesh.jetstream import task_store
from mesh.jetstream.task_store import JetStreamTaskStore
from mesh.model.cluster import InstanceState
from mesh.spark.shared_query import task
from mesh.spark.shared_query.slot_network import Address, Secret, TlsListener, connect
from mesh.spark.task_states import RemoteState
from pyspark_nats.protocol.connection_options import connection_options
from tests.support.own_slots import Mesh, QueryWithoutSpark

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from mesh.spark.shared_query.slot_network import SessionLink
    from tests.support.shared_query import Hand

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]
HERE = Address("127.0.0.1")


@pytest.fixture
def shared(tmp_path: Path, hand: Hand) -> Iterator[QueryWithoutSpark]:
    made = QueryWithoutSpark(tmp_path / "shared", hand, elsewhere=HERE)
    made.start()
    yield made
    made.stop()
    task_store.close_idle()


@pytest.fixture
def mesh(tmp_path: Path, hand: Hand, shared: QueryWithoutSpark) -> Mesh:
    hand.make_state_buckets()
    store = JetStreamTaskStore(connection_options(hand.nats))
    made = Mesh(tmp_path / "instances", hand, shared, store)
    hand.make(made.spec)
    return made


@pytest.mark.slow
def test_a_state_is_stored_by_its_slot_and_goes_on_elsewhere(
    mesh: Mesh, shared: QueryWithoutSpark
) -> None:
    one = mesh.start("sums")
    mesh.runs("sums")
    for n in (1, 2, 3, 4):
        mesh.publish("Numbers", {"n": n})
        mesh.rows("Sums", n)
    mesh.until("sums", lambda told: told[-1].messages_in == 4)
    one.stop(settle=True)
    one.join()
    assert mesh.told["sums"][-1].settled
    assert not [status for status in mesh.told["sums"] if status.error]
    # The window of three is fetched, and goes on.
    again = mesh.start("sums")
    mesh.publish("Numbers", {"n": 5})
    assert mesh.rows("Sums", 5)[-1] == [12]
    again.stop()
    again.join()


def test_a_slot_that_is_killed_loses_and_doubles_nothing(
    mesh: Mesh, shared: QueryWithoutSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh.start("sums")
    mesh.runs("sums")
    mesh.publish("Numbers", {"n": 1}, {"n": 2}, {"n": 3})
    mesh.rows("Sums", 3)
    dies = threading.Event()
    real = task.run

    def run(item: Any, **given: Any) -> Any:
        if not dies.is_set():
            dies.set()
            raise EOFError
        return real(item, **given)

    monkeypatch.setattr(task, "run", run)
    failed_before = len(shared.runs)
    mesh.publish("Numbers", {"n": 4})
    assert mesh.rows("Sums", 4) == [[1], [3], [6], [9]]
    assert len(shared.runs) >= failed_before
    mesh.until("sums", lambda told: told[-1].state is InstanceState.RUNNING)


def test_the_session_sees_what_a_slot_works_for(
    mesh: Mesh, shared: QueryWithoutSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh.start("sums")
    mesh.runs("sums")
    go_on, began = threading.Event(), threading.Event()
    real = task.run

    def run(item: Any, **given: Any) -> Any:
        began.set()
        assert go_on.wait(30)
        return real(item, **given)

    monkeypatch.setattr(task, "run", run)
    mesh.publish("Numbers", {"n": 1})
    assert began.wait(30)
    links = shared.links
    while not (works := [w.instance for link in links if (w := link.work()) is not None]):
        shared.pause()
    assert works == ["A-sums-1"]
    go_on.set()
    mesh.rows("Sums", 1)
    while any(link.work() is not None for link in links):
        shared.pause()


@pytest.mark.slow
def test_the_pieces_of_a_state_that_is_gone_are_discarded(
    mesh: Mesh, shared: QueryWithoutSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    discarded: list[str] = []

    def discard(part: str, names: Collection[str]) -> None:
        discarded.extend(names)

    monkeypatch.setattr(mesh.stores["sums"], "discard", discard)
    one = mesh.start("sums")
    mesh.runs("sums")
    sent = 0
    while not discarded:
        sent += 1
        mesh.publish("Numbers", {"n": sent})
        mesh.rows("Sums", sent)
    kept = RemoteState(one.snapshots.states, "0").record()  # type: ignore[arg-type]
    assert not set(discarded) & kept.named
    one.stop()
    one.join()


def both(listener: TlsListener, secret: Secret | None) -> tuple[SessionLink, SessionLink]:
    with ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(listener.accept)
        there = connect(listener.address, secret)
        return accepted.result(10), there


def test_a_link_carries_objects_of_any_size_in_both_directions() -> None:
    listener = TlsListener(HERE)
    here, there = both(listener, listener.secret)
    large = {"a": bytes(3_000_000)}
    with ThreadPoolExecutor(2) as pool:
        answers = pool.submit(here.recv), pool.submit(there.recv)
        there.send(large)
        here.send(large)
        assert [answer.result(30) for answer in answers] == [large, large]
    there.send("one")
    there.send("two")
    assert here.recv() == "one"
    while not here.poll():
        threading.Event().wait(0.01)
    assert here.recv() == "two"
    assert not here.poll()
    there.close()
    with pytest.raises((EOFError, OSError)):
        here.recv()
    here.close()
    listener.close()


def test_messages_that_come_together_are_read_together() -> None:
    listener = TlsListener(HERE)
    here, there = both(listener, listener.secret)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(here.recv)
        there.send("first")
        assert first.result(10) == "first"
    # Records of TLS itself are no message: a slot that waited for one would serve nothing.
    while select.select([there], [], [], 0.1)[0]:
        assert not there.poll()
    for number in range(100):
        here.send(number)
    for number in range(100):
        assert there.poll()
        assert there.recv() == number
    assert not there.poll()
    here.close()
    while not there.poll():
        threading.Event().wait(0.01)
    with pytest.raises(EOFError):
        there.recv()
    there.close()
    listener.close()


def test_who_has_another_certificate_or_none_gets_nothing() -> None:
    listener, other = TlsListener(HERE), TlsListener(HERE)
    secret = other.secret
    here, there = both(listener, secret)
    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(here.recv)
        with pytest.raises(ssl.SSLError):
            there.send("pickled")
        there.close()
        with pytest.raises(ssl.SSLError):
            heard.result(30)
    here.close()
    host, _, port = listener.address.partition(":")
    with ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(listener.accept)
        with socket.create_connection((host, int(port))) as plain:
            here = accepted.result(10)
            plain.sendall(b"no TLS at all, and long enough for a record")
            with pytest.raises(ssl.SSLError):
                here.recv()
    here.close()
    listener.close()
    other.close()
