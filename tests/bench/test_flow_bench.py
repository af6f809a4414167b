"""Secured measurements beside plain ones: what is compared, and that the programs speak TLS."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from bench.chaos.servers import Servers
from bench.connector.harness import Figure
from bench.connector.plain import PublishAtomically
from bench.connector.wire import Wire
from bench.flow import meter, plain, secured
from bench.flow.__main__ import main
from bench.mesh import harness
from tests.support.secured import FEEDER, READER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EVENTS = 300


def test_the_best_of_plain_and_of_secured_are_compared() -> None:
    values = iter((4.0, 9.0, 2.0, 3.0, 20.0, 15.0, 10.0, 8.0))
    seen: list[harness.Arrangement] = []

    def measure() -> list[Figure]:
        value = next(values)
        seen.append(harness.ARRANGEMENT.get())
        return [
            Figure("app, p99", value, "ms", 25.0, at_least=False),
            Figure("W1", 100 / value, "k/s", 0.6, limit=200.0),
            Figure("memory", value, "MB"),
            Figure("events seen twice", 0.0, "", 0.0, at_least=False),
        ]

    found = {one.name: one for one in secured.measured(measure, (1, 3), 2)}
    assert [(one.servers, one.is_secured) for one in seen] == [
        *[(1, False), (1, True)] * 2, *[(3, False), (3, True)] * 2,
    ]  # fmt: skip
    one, three = found["app, p99; 1 server"], found["app, p99; 3 servers"]
    assert (one.value, one.limit, one.is_met) == (3.0, 2.0, False)
    assert (three.value, three.limit, three.is_met) == (8.0, 10.0, True)
    assert one.runs == (9.0, 3.0)
    rate = found["W1; 1 server"]
    assert rate.ratio == pytest.approx(2 / 3)
    assert rate.is_met is False
    assert found["W1; 3 servers"].is_met is True
    assert found["memory; 1 server"].is_met is None
    assert found["events seen twice; 1 server"].is_met is True


async def test_what_is_timed_alternates_between_the_arrangements() -> None:
    seen: list[tuple[bool, str]] = []

    async def measure() -> list[Figure]:
        for _ in range(2):
            async with harness.turn():
                is_secured = harness.ARRANGEMENT.get().is_secured
                seen.append((is_secured, "begins"))
                await asyncio.sleep(0)
                seen.append((is_secured, "ends"))
        return [Figure("app, p50", 2.0 if is_secured else 1.0, "ms")]

    (found,) = await secured.alternated(measure, (1,), 1)
    assert seen == [(one, what) for one in (False, True) * 2 for what in ("begins", "ends")]
    assert (found.ratio, found.is_met) == (2.0, False)


def test_an_unknown_measurement_is_refused() -> None:
    assert main(["--secured", "--only", "latncy"]) == 2


@pytest.fixture(params=[False, True])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Servers]:
    made = Servers(tmp_path / "nats", 1, is_secured=request.param)
    yield made
    made.stop()


@pytest.mark.slow
@pytest.mark.nats
def test_the_programs_speak_to_plain_and_to_secured_servers(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "_WINDOW", EVENTS // 3)
    feeder = harness.access(servers, FEEDER)
    with Wire(feeder) as wire:
        a = {"subjects": ["mesh.A.Input"], "max_msgs": EVENTS, "discard": "new"}
        wire.call("STREAM.CREATE.a", name="a", **a)
        for name, subject in (("in", "mesh.plain.in"), ("out", "mesh.plain.out"), ("o", "o")):
            wire.call(f"STREAM.CREATE.{name}", name=name, subjects=[subject], allow_atomic=True)
        plain.fill(feeder, "mesh.plain.in", EVENTS)
        job = plain.Job(feeder, "in", EVENTS, "mesh.plain.out", "filter")
        assert plain.run(job) > 0
        assert wire.call("STREAM.INFO.out")["state"]["messages"] == EVENTS
        assert PublishAtomically(feeder, "o", 70, 0, EVENTS, rows=100).prepare()() == EVENTS
        assert wire.call("STREAM.INFO.o")["state"]["messages"] == EVENTS
    # Without an app between, each event comes back as it is.
    reader = harness.access(servers, READER)
    found = meter.run(meter.Job(feeder, reader, ("A",), "Input", 10_000, EVENTS))
    assert (found.count, found.repeats, found.missing) == (EVENTS, 0, 0)
    # The stream is full now, and a publisher is told so.
    with pytest.raises(RuntimeError, match="refused"):
        meter.run(meter.Job(feeder, reader, ("A",), "Input", 10_000, EVENTS))
