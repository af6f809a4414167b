"""What a carrier's planner and tasks do, with a real server and without Spark."""

from __future__ import annotations

import base64
import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from mesh.clock import SystemClock
from mesh.jetstream.channels import js_streams
from mesh.model import names
from mesh.model.cluster import Assignment, InstanceState, InstanceStatus
from mesh.plan.build import plan
from mesh.spark import carried, carrier_member
from mesh.spark.carried import CarriedInstance
from mesh.spark.carrier_plan import Plan
from mesh.spark.carrier_task import outcomes
from mesh.spark.carrier_work import ADMITTED, FAILED, REMOVED, WORK
from mesh.spark.given import Given, InstanceOptions
from mesh.spark.wiring import Wiring
from pyspark_nats.protocol.connection import Connection, close_shared
from pyspark_nats.protocol.connection_options import connection_options
from pyspark_nats.protocol.subscriptions import MessageListener

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from mesh.clock import Clock
    from mesh.jetstream.server import NatsServer
    from mesh.model.app import AppSpec
    from mesh.spark.carrier_member import Member

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

APP = """@App:name('{name}')
define stream Numbers (n int);
@dist(execGroup='sums')
from Numbers#window.length(3) select sum(n) as total insert into Sums;
@dist(execGroup='large')
from Numbers[n > 1] select n * 10 as tenfold insert into Large;
@dist(execGroup='late')
from Numbers#window.time(500 millisec) select n insert expired events into Late;
"""


class Snapshots:
    """A store in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[bytes, dict[str, bytes]]] = {}
        #: The last sequence of every stream.
        self.last = 0

    def restore(self, part: str, piece_path: Callable[[str], Path]) -> bytes | None:
        if part not in self.kept:
            return None
        manifest, pieces = self.kept[part]
        for name, data in pieces.items():
            piece_path(name).write_bytes(data)
        return manifest

    def save(self, part: str, manifest: bytes, pieces: Mapping[str, Path]) -> None:
        self.kept[part] = manifest, {name: path.read_bytes() for name, path in pieces.items()}

    def forget(self, part: str) -> None:
        return

    def behind(self, consumed: Mapping[str, int]) -> int:
        return 0

    def ends(self, streams: Collection[str]) -> dict[str, int]:
        return dict.fromkeys(streams, self.last)


class Hand:
    """A carrier without Spark: batches run when ``step`` is called."""

    def __init__(self, directory: Path, nats: NatsServer) -> None:
        self.nats = {"servers": nats.url}
        self.directory = directory
        self.members = directory / "members"
        self.members.mkdir()
        self.pool = self.errands = ThreadPoolExecutor(1)
        self.known = connection_options(self.nats)
        self.plan = Plan(self.members, self.known, "_INBOX.nudge")
        self.broker = Connection(self.known)
        self.passengers: dict[str, Any] = {}
        self.generations = itertools.count(1)
        #: Only queries of their own would use it.
        self.session = None
        self.batch = 0

    def board(self, passenger: Any) -> None:
        pass

    def alight(self, passenger: Any) -> None:
        pass

    def enter(self, passenger: Any, member: Member) -> None:
        self.passengers[member.file_name] = passenger, member
        carrier_member.write(self.members, member)

    def leave(self, member: Member) -> None:
        if (self.members / member.file_name).exists():
            carrier_member.send_out(self.members, member)

    def step(self, wait_s: float = 5.0) -> list[tuple[str, str]]:
        """Run the next batch; kind and instance of each outcome."""
        self.pool.submit(int).result()
        self.batch += 1
        told = []
        for made in outcomes(self.members, self.batch, self.plan.next(wait_s)):
            row = SimpleNamespace(**made.to_pylist()[0])
            told.append((row.kind, row.instance.split("-")[1]))
            name = carrier_member.file_name(row.instance, row.generation)
            passenger, member = self.passengers[name]
            if row.kind in (FAILED, REMOVED):
                carrier_member.remove(self.members, member)
            passenger.take(row)
        self.pool.submit(int).result()
        return told

    def until(self, kind: str, instance: str) -> None:
        """Run batches until one tells that."""
        for _ in range(20):
            if (kind, instance) in self.step():
                return
        raise AssertionError(f"{instance} did not become {kind}")

    def publish(self, app: str, *numbers: int) -> None:
        """Store events."""
        calls = [(f"mesh.{app}.Numbers", json.dumps({"n": n}).encode()) for n in numbers]
        self.broker.retry_while_unavailable("publishing", lambda: self.broker.requests(calls))

    def make(self, spec: AppSpec) -> None:
        """Make the channels of an app."""
        for name, subject in js_streams(spec):
            config = {
                "name": name,
                "subjects": [subject, f"{names.marker_subject(name)}.>"],
                "allow_direct": True,
                "allow_rollup_hdrs": True,
                "allow_atomic": True,
            }
            call = (f"$JS.API.STREAM.CREATE.{name}", json.dumps(config).encode())
            self.ask(call)

    def ask(self, call: tuple[str, bytes]) -> bytes:
        return self.broker.retry_while_unavailable("asking", lambda: self.broker.requests([call]))[
            0
        ].data

    def rows(self, app: str, stream: str) -> list[list[Any]]:
        """All events of a stream."""
        found: list[list[Any]] = []
        at = 1
        while True:
            call = (
                f"$JS.API.STREAM.MSG.GET.mesh-{app}-{stream}",
                json.dumps({"seq": at, "next_by_subj": f"mesh.{app}.{stream}"}).encode(),
            )
            answer = json.loads(self.ask(call))
            if "message" not in answer:
                return found
            at = answer["message"]["seq"] + 1
            found.append(list(json.loads(base64.b64decode(answer["message"]["data"])).values()))


class Instances:
    """The instances of an app, in the hand."""

    def __init__(
        self,
        hand: Hand,
        name: str,
        stores: dict[str, Snapshots] | None = None,
        clock: Clock | None = None,
        epoch: int = 1,
        until: Mapping[str, int] | None = None,
        retry_s: float = 0.0,
    ) -> None:
        self.spec = plan(APP.format(name=name)).spec
        self.stores = stores or {group.name: Snapshots() for group in self.spec.groups}
        self.states: dict[str, InstanceState] = {}
        self.statuses: dict[str, InstanceStatus] = {}
        options = InstanceOptions("w", hand.nats, 1000, 0.0, retry_s, 30.0, 30.0)
        self.by_group = {}
        for group in self.spec.groups:
            assignment = Assignment(
                group.instances[0],
                name,
                group.name,
                1,
                "w",
                "i",
                epoch=epoch,
                lease_revision=0,
                until=until,
            )
            directory = hand.directory / name / group.name / str(len(hand.passengers))

            def report(status: InstanceStatus, group: str = group.name) -> None:
                self.statuses[group] = status

            self.by_group[group.name] = CarriedInstance(
                hand,  # type: ignore[arg-type]
                Given(
                    Wiring(group, assignment),
                    options,
                    directory,
                    self.stores[group.name],
                    report,
                    clock or SystemClock(),
                ),
            )

    def told(self, group: str) -> InstanceState:
        """The state that was reported last."""
        return self.statuses[group].state


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """The connection that tasks of this process share is closed after each test."""
    yield
    close_shared()


@pytest.fixture
def hand(tmp_path: Path, nats_server: NatsServer) -> Iterator[Hand]:
    """A carrier without Spark."""
    made = Hand(tmp_path, nats_server)
    yield made
    made.plan.close()
    made.broker.close()
    made.pool.shutdown()


def begun(hand: Hand, name: str, clock: Clock | None = None, *, retry_s: float = 0.0) -> Instances:
    """An app whose instances are all in."""
    app = Instances(hand, name, clock=clock, retry_s=retry_s)
    hand.make(app.spec)
    for one in app.by_group.values():
        one.start()
    told = hand.step()
    assert {kind for kind, _ in told} == {ADMITTED}
    assert {status.state for status in app.statuses.values()} == {InstanceState.RUNNING}
    return app


def test_instances_of_all_kinds_share_a_batch(hand: Hand) -> None:
    begun(hand, "A")
    hand.publish("A", 1, 2, 3, 4)
    assert sorted(hand.step()) == [(WORK, "large"), (WORK, "late"), (WORK, "sums")]
    assert hand.rows("A", "Sums") == [[1], [3], [6], [9]]
    assert hand.rows("A", "Large") == [[20], [30], [40]]
    assert hand.rows("A", "Late") == []
    # Nothing comes; its timer is due.
    assert hand.step() == [(WORK, "late")]
    assert hand.rows("A", "Late") == [[1], [2], [3], [4]]
    assert hand.step(0.1) == []


def test_one_that_leaves_goes_on_elsewhere_where_it_was(hand: Hand) -> None:
    app = begun(hand, "A")
    hand.publish("A", 1, 2)
    hand.step()
    hand.publish("A", 3)
    app.by_group["sums"].stop()
    hand.until(REMOVED, "sums")
    app.by_group["sums"].join()
    assert app.statuses["sums"].state is InstanceState.STOPPED
    hand.publish("A", 4)
    hand.until(WORK, "large")
    again = Instances(hand, "A", app.stores)
    again.by_group["sums"].start()
    hand.until(WORK, "sums")
    assert hand.rows("A", "Sums") == [[1], [3], [6], [9]]


def test_a_timer_is_due_where_it_was_restored(hand: Hand) -> None:
    app = begun(hand, "A")
    hand.publish("A", 1)
    hand.until(WORK, "late")
    app.by_group["late"].stop()
    hand.until(REMOVED, "late")
    app.by_group["late"].join()
    assert hand.rows("A", "Late") == []
    again = Instances(hand, "A", app.stores)
    again.by_group["late"].start()
    hand.until(ADMITTED, "late")
    while not hand.rows("A", "Late"):
        hand.until(WORK, "late")
    assert hand.rows("A", "Late") == [[1]]


def test_one_that_starts_again_from_before_doubles_nothing(hand: Hand) -> None:
    app = begun(hand, "A")
    hand.publish("A", 1, 2)
    hand.step()
    # As after a kill: nothing was shared.
    for group in ("sums", "large"):
        app.by_group[group].thrown_out("killed", is_suspect=False)
    hand.publish("A", 3)
    hand.until(WORK, "sums")
    hand.step(0.5)
    assert hand.rows("A", "Sums") == [[1], [3], [6]]
    assert hand.rows("A", "Large") == [[20], [30]]


def test_what_fails_fails_for_one(hand: Hand) -> None:
    app = begun(hand, "A")
    hand.ask(("$JS.API.STREAM.DELETE.mesh-A-Sums", b""))
    hand.publish("A", 1, 2)
    told = hand.step()
    assert sorted(told) == [(FAILED, "sums"), (WORK, "large"), (WORK, "late")]
    failed = app.statuses["sums"]
    assert failed.state is InstanceState.RETRYING
    assert "mesh-A-Sums" in str(failed.error)
    hand.publish("A", 3)
    hand.until(WORK, "large")
    assert hand.rows("A", "Large") == [[20], [30]]
    hand.make(app.spec)
    app.by_group["sums"].look(SystemClock().monotonic_s())
    hand.until(WORK, "sums")
    assert hand.rows("A", "Sums") == [[1], [3], [6]]


def test_one_that_fails_again_rests_twice_as_long_until_it_has_run_for_a_while(hand: Hand) -> None:
    clock = HandClock()
    app = begun(hand, "A", clock, retry_s=1.0)
    sums = app.by_group["sums"]

    def rests_s() -> float:
        """Have it fail; how long it says that it rests, after which it is up again."""
        hand.ask(("$JS.API.STREAM.DELETE.mesh-A-Sums", b""))
        hand.publish("A", 1)
        hand.until(FAILED, "sums")
        hand.make(app.spec)
        failed = app.statuses["sums"]
        assert failed.retry_at_ms is not None
        found = (failed.retry_at_ms - failed.at_ms) / 1000
        sums.look(clock.now_s + found - 0.01)
        assert app.told("sums") is InstanceState.RETRYING
        clock.now_s += found
        sums.look(clock.now_s)
        hand.until(ADMITTED, "sums")
        assert app.statuses["sums"].retry_at_ms is None
        return found

    assert [rests_s() for _ in range(3)] == [1.0, 2.0, 4.0]
    clock.now_s += 30.0
    assert rests_s() == 1.0


class HandClock(SystemClock):
    """A clock that stands still."""

    now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s


class OwnQuery:
    """An instance with a query of its own, without Spark."""

    made: ClassVar[list[OwnQuery]] = []

    def __init__(self, _session: Any, given: Given) -> None:
        self.wiring = given.wiring
        self._report = given.report
        self.stops = 0

    def start(self) -> None:
        self.made.append(self)

    def stop(self, *, settle: bool = False) -> None:
        self.stops += 1
        self.say(InstanceState.STOPPED)

    def say(self, state: InstanceState, messages_in: int = 0) -> None:
        told = self.wiring.assignment
        self._report(InstanceStatus(told.instance, "A", "w", 1, state, 0, messages_in=messages_in))


@pytest.fixture
def own_queries(monkeypatch: pytest.MonkeyPatch) -> list[OwnQuery]:
    """The instances that were given queries of their own."""
    OwnQuery.made = []
    monkeypatch.setattr(carried, "Instance", OwnQuery)
    return OwnQuery.made


def test_one_that_is_busy_is_set_apart_until_it_is_quiet(
    hand: Hand, own_queries: list[OwnQuery]
) -> None:
    clock = HandClock()
    app = begun(hand, "A", clock)
    sums = app.by_group["sums"]
    for _ in range(2):
        hand.publish("A", 1, 2, 3)
        hand.until(WORK, "sums")
        sums._load.ms = 2000.0
        clock.now_s += 3
        assert not own_queries
        sums.look(clock.now_s)
    hand.until(REMOVED, "sums")
    (own,) = own_queries
    own.say(InstanceState.RUNNING, messages_in=4)
    assert app.statuses["sums"].messages_in == 10
    clock.now_s += 61
    assert own.stops == 0
    own.say(InstanceState.RUNNING, messages_in=4)
    assert own.stops == 1
    hand.until(ADMITTED, "sums")
    hand.publish("A", 5)
    hand.until(WORK, "sums")
    assert app.statuses["sums"].state is InstanceState.RUNNING
    assert hand.rows("A", "Sums") == [[1], [3], [6], [6], [6], [6], [10]]


def test_a_suspect_is_set_apart_for_long(hand: Hand, own_queries: list[OwnQuery]) -> None:
    clock = HandClock()
    app = begun(hand, "A", clock)
    for group, one in app.by_group.items():
        one.thrown_out("a Python worker exited unexpectedly", is_suspect=group == "sums")
    hand.until(ADMITTED, "large")
    assert app.told("sums") is InstanceState.RETRYING
    app.by_group["sums"].look(clock.now_s)
    hand.step(0.1)
    (own,) = own_queries
    own.say(InstanceState.RUNNING)
    clock.now_s += 599
    own.say(InstanceState.RUNNING)
    assert own.stops == 0
    app.by_group["sums"].stop()
    app.by_group["sums"].join()
    assert own.stops == 1
    assert app.told("sums") is InstanceState.STOPPED


def test_one_that_is_asked_to_stop_before_it_is_in_ends(hand: Hand) -> None:
    app = Instances(hand, "A")
    hand.make(app.spec)
    one = app.by_group["large"]
    one.start()
    one.stop()
    hand.step(0.2)
    one.join()
    assert app.statuses["large"].state is InstanceState.STOPPED


def test_ears_hear_each_name_once(nats_server: NatsServer) -> None:
    known = connection_options({"servers": nats_server.url})
    listener, mouth = MessageListener(Connection(known)), Connection(known)

    def say(*subjects: str) -> None:
        lines = "".join(f"PUB {subject} 0\r\n\r\n" for subject in subjects).encode()
        mouth.retry_while_unavailable("saying", lambda: mouth.send(lines))

    wanted = {"a": ("x.a", "y.a"), "b": ("x.b",)}
    assert listener.listen(wanted) == {"a", "b"}
    assert listener.listen(wanted) == set()
    say("x.a", "y.a", "x.a", "x.c")
    listener.wait(5)
    assert listener.poll() == {"a"}
    assert listener.listen(wanted) == {"a"}
    listener.forget("b")
    say("x.b", "y.a")
    listener.wait(5)
    assert listener.poll() == {"a"}
    listener.close()
    # What is made anew hears nothing, and says so.
    assert listener.listen(wanted) == {"a", "b"}
    listener.close()
    mouth.close()
