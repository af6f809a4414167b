"""Checks of the chaos suite: rows compared, stories matched, moments met; one fault in full."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from bench.chaos import __main__ as chaos
from bench.chaos import app, report, totals
from bench.chaos.compare import Compared, compare
from bench.chaos.latency import Latency
from bench.chaos.outages import Outage
from bench.chaos.run import Outcome
from bench.chaos.scenarios import SCENARIOS
from bench.chaos.scene import unmatched
from mesh.plan.build import plan
from tools.links import Links, When

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.chaos.scenario import Scenario

WANTED = {"Out": [["a", 1], ["b", 2], ["a", 3]]}


@pytest.mark.parametrize(
    ("found", "lost", "doubled", "disordered"),
    [
        ([["a", 1], ["b", 2], ["a", 3]], 0, 0, 0),
        # Rows of two keys have no order.
        ([["b", 2], ["a", 1], ["a", 3]], 0, 0, 0),
        ([["a", 3], ["b", 2], ["a", 1]], 0, 0, 2),
        ([["a", 1], ["b", 2]], 1, 0, 0),
        ([["a", 1], ["a", 1], ["b", 2], ["a", 3]], 0, 1, 0),
        ([["a", 1], ["b", 9], ["a", 3]], 1, 1, 0),
        ([], 3, 0, 0),
    ],
)
def test_rows_are_compared_by_key(
    found: list[list[Any]], lost: int, doubled: int, disordered: int
) -> None:
    got = compare({"Out": found}, WANTED)
    assert (got.lost, got.doubled, got.disordered) == (lost, doubled, disordered)
    assert got.is_same == (not got.told)


def test_rows_of_instances_side_by_side_have_no_order() -> None:
    assert compare({"Out": [["a", 3], ["b", 2], ["a", 1]]}, WANTED, {"Out"}).is_same


def test_a_story_tells_its_patterns_in_order() -> None:
    lines = ("w1 began", "w2 began", "m1 placed A-1 on w2", "w2 runs A-1")
    assert unmatched(["w1 began", r"placed A-\d", "runs"], lines) == ()
    assert unmatched(["placed", "began", "runs"], lines) == ("began", "runs")


def test_the_more_events_come_the_more_rows_and_none_of_the_earlier_ones_changes() -> None:
    text = app.text("App", in_sides=True)
    labels = {group.name: group.node for group in plan(text).spec.groups}
    assert (labels["flat"], labels["whole"]) == (("side=a",), ("side=b",))
    sent = [app.event(number) for number in range(200)]
    few, more = app.expected(sent[:60], text), app.expected(sent, text)
    assert set(few) == set(app.OUTPUTS)
    for stream, rows in few.items():
        assert rows
        assert more[stream][: len(rows)] == rows


def outcome(lost: int = 0, untold: tuple[str, ...] = (), error: str = "") -> Outcome:
    compared = Compared(rows=10, lost=lost)
    return Outcome("one", "a fault", compared, 2.5, 20.0, 10, untold, error=error)


def test_an_aggregation_has_a_group_of_its_own_and_the_sums_of_all_events() -> None:
    text = app.text("App", store="@store(type='rdbms', jdbc.url='jdbc:postgresql://h/d')")
    assert "stored" in {group.name for group in plan(text).spec.groups}
    sent = [app.event(number) for number in range(200)]
    assert set(app.expected(sent, text)) == set(app.OUTPUTS)
    rows = totals.expected(sent)
    assert sum(row[1] for row in rows) == sum(range(200))
    assert sum(row[2] for row in rows) == 200


@pytest.mark.parametrize(
    ("bad", "lost"), [(outcome(lost=2), 2), (outcome(untold=("x",)), 0), (outcome(error="x"), 0)]
)
def test_a_fault_is_good_when_every_run_is(bad: Outcome, lost: int) -> None:
    assert json.loads(json.dumps(report.document([outcome()], {})))["is_good"]
    (fault,) = report.by_fault([outcome(), bad])
    assert not fault["is_good"]
    assert (fault["runs"], fault["rows"], fault["lost"], fault["recovery_s"]) == (2, 20, lost, 2.5)
    assert not report.document([outcome(), bad], {})["is_good"]


def test_an_interruption_is_the_longest_pause_after_the_fault() -> None:
    load, rows = [0.0, 5_000.0, 5_100.0], {"Out": [900.0, 4_000.0, 10_500.0, 5_000.0]}
    found = Outage.of({"S": 4.5, "T": 1.0}, load, rows, since_ms=1_000.0)
    assert (found.election_s, found.load_s, found.outputs) == (4.5, 0.1, {"Out": 5.5})
    assert (found.output_s, found.excess_s) == (5.5, 1.0)
    assert Outage.of({"S": 9.0}, [], {"Out": [1.0]}, 0.0).excess_s == 0.0


def test_latency_is_that_of_the_events_that_count() -> None:
    outputs = [(0, 900.0), (1, 1_010.0), (1, 1_030.0), (2, 1_120.0), (9, 5_000.0)]
    events = {0: 0.0, 1: 1_000.0, 2: 1_100.0}
    found = Latency.of(events, outputs, range(1, 10))
    assert found is not None
    assert (found.outputs, found.median_ms, round(found.p99_ms)) == (3, 20.0, 30)
    assert Latency.of(events, outputs, range(3, 9)) is None


@pytest.mark.parametrize(
    ("median_ms", "p99_ms", "scenario", "reason"),
    [
        (75.0, 350.0, "calm", ""),
        (1_633.0, 350.0, "calm", "median 1633 ms beside 31 ms"),
        (75.0, 2_711.0, "calm", "p99 2711 ms beside 94 ms"),
        # After a fault processes have just been started.
        (300.0, 2_711.0, "node-killed", ""),
        (1_633.0, 1_700.0, "node-killed", "median 1633 ms beside 31 ms"),
    ],
)
def test_a_run_that_is_slower_than_a_plain_one_is_not_good(
    median_ms: float, p99_ms: float, scenario: str, reason: str
) -> None:
    mine = replace(outcome(), scenario=scenario, latency=Latency(100, median_ms, p99_ms))
    found = mine.beside(Latency(100, 31.0, 94.0))
    assert found.is_good == (not reason)
    assert reason in found.error


def test_secured_runs_come_after_a_plain_one_and_the_calm_one_is_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played: list[tuple[str, bool]] = []

    class FakeStage(contextlib.nullcontext[bool]):
        def __init__(self, _: str, __: object, *, is_secured: bool) -> None:
            super().__init__(is_secured)

    async def play(is_secured: bool, scenario: Scenario, _: int) -> Outcome:
        played.append((scenario.name, is_secured))
        slow_ms = 900.0 if scenario.name == "calm" else 20.0
        latency = Latency(10, slow_ms, slow_ms)
        return Outcome(scenario.name, scenario.fault, latency=latency)

    monkeypatch.setattr(chaos, "Stage", FakeStage)
    monkeypatch.setattr(chaos, "play", play)
    names = "server-killed,node-killed,worker-cut"
    assert chaos.main(["--secured", "--only", names, "--output", "json"]) == 1
    assert [name for name, _ in played[:2]] == ["calm-plain", "calm"]
    assert [name for name, is_secured in played if not is_secured] == ["calm-plain"]
    faults = json.loads(capsys.readouterr().out)["faults"]
    assert {one["scenario"] for one in faults if not one["is_good"]} == {"calm"}


def test_scenarios_have_names_of_their_own() -> None:
    names = [one.name for one in SCENARIOS]
    assert len(set(names)) == len(names)
    assert len({one.fault for one in SCENARIOS}) == len(names)


def test_an_unknown_scenario_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert chaos.main(["--only", "nothing"]) == 2
    assert "no such scenario: nothing" in capsys.readouterr().err


def test_a_scenario_that_fails_stops_no_other_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stages: list[str] = []

    class FakeStage(contextlib.nullcontext[None]):
        def __init__(self, topology: str, _: object, *, is_secured: bool) -> None:
            assert not is_secured
            stages.append(topology)
            if len(stages) == 3:
                raise OSError("no room")
            super().__init__()

    async def play(_: object, scenario: Scenario, run: int) -> Outcome:
        error = "x" if scenario.name in ("server-killed", "nats-away") else ""
        return Outcome(scenario.name, scenario.fault, error=error)

    monkeypatch.setattr(chaos, "Stage", FakeStage)
    monkeypatch.setattr(chaos, "play", play)
    names = "moved-about,server-killed,server-restarted,nats-away,storm,nodes-killed"
    assert chaos.main(["--only", names, "--output", "json"]) == 1
    # The scenario after a failed one has a stage of its own.
    faults = json.loads(capsys.readouterr().out)["faults"]
    assert [(one["scenario"], one["failures"]) for one in faults] == [
        ("moved-about", []),
        ("server-killed", ["x"]),
        ("server-restarted", []),
        ("nats-away", ["x"]),
        ("storm", ["no stage for it: OSError: no room"]),
        ("nodes-killed", []),
    ]
    assert stages == ["one", "one", "one", "three"]


class Echo:
    """A server that answers each line, as NATS answers a publish, and records the input."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.received: list[bytes] = []
        self.arrived = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def wait_for(self, line: bytes) -> bool:
        with self.arrived:
            return self.arrived.wait_for(lambda: line in self.received, 10)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        # A client that ends while an answer is on its way resets the connection.
        with (
            contextlib.suppress(ConnectionError),
            connection,
            connection.makefile("rb") as lines,
        ):
            for line in lines:
                with self.arrived:
                    self.received.append(line.strip())
                    self.arrived.notify_all()
                words = line.split()
                connection.sendall(b"MSG %s 1\n" % (words[2] if len(words) > 2 else b"none"))


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.socket.close()


@pytest.fixture
def links() -> Iterator[Links]:
    with Links() as made:
        yield made


def connect(links: Links, echo: Echo) -> socket.socket:
    url = links.to("w1", [echo.socket.getsockname()])
    made = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
    made.settimeout(10)
    return made


def test_what_a_cut_link_holds_back_arrives_when_it_is_healed(links: Links, echo: Echo) -> None:
    with connect(links, echo) as client:
        client.sendall(b"one\n")
        assert client.recv(100) == b"MSG none 1\n"
        links.cut("w1", up=False)
        client.sendall(b"two\n")
        assert echo.wait_for(b"two")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(100)
        links.heal("w1")
        client.settimeout(10)
        assert client.recv(100) == b"MSG none 1\n"


@pytest.mark.parametrize("when", When)
def test_a_trap_closes_at_its_moment(links: Links, echo: Echo, when: When) -> None:
    with connect(links, echo) as client:
        client.sendall(b"first\r\n")
        assert client.recv(100)
        trap = links.trap("w1", b"commit", when, lambda: None)
        client.sendall(b"second\r\nPUB the.commit reply.7 0\r\n")
        assert trap.closed.wait(10)
        assert echo.wait_for(b"second")
        assert (b"PUB the.commit reply.7 0" in echo.received) == (when is not When.BEFORE)
        told = b""
        with contextlib.suppress(ConnectionResetError):
            while b"reply.7" not in told and (more := client.recv(100)):
                told += more
        assert (b"reply.7" in told) == (when is When.AFTER)


@pytest.mark.extended
@pytest.mark.nats
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_worker_killed_in_the_middle_of_a_commit(capsys: pytest.CaptureFixture[str]) -> None:
    status = chaos.main(["--only", "worker-killed-during-commit", "--output", "json"])
    (fault,) = json.loads(capsys.readouterr().out)["faults"]
    assert (status, fault["lost"], fault["doubled"], fault["failures"]) == (0, 0, 0, [])
