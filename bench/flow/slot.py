"""Processor time of a slot for one event: ``python -m bench.flow.slot [--app NAME]``.

The slot runs in this process, without Spark and the rest of a worker, against a server of its own.
Another process publishes at a rate.  The figure is the processor time of the slot's thread for each
run, beside the latency that the other process sees.  One event is one run at a low rate.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.connector.wire import Access, Wire
from bench.flow.latency import APPS, HEAD
from bench.flow.meter import Job, Measured
from mesh.jetstream import server
from mesh.processes.bounded_process import die_with_parent
from tests.support.shared_query import Hand, Instances, admitted

if TYPE_CHECKING:
    from collections.abc import Sequence

_RATE: Final = 200
_EVENTS: Final = 2_000
_WARM_UP: Final = 200
#: Number of the first event after the warm-up: as many digits as those of the meter.
_BASE: Final = 10**15
_SILENCE_S: Final = 1.0
_SOON_S: Final = 0.1


@dataclass(frozen=True)
class Cost:
    """Of one app."""

    app: str
    runs: int
    #: Processor time of the slot's thread for each run, its waits among it, milliseconds.
    run_ms: float
    p50_ms: float
    p99_ms: float
    wrong: int


def measure(
    app: str, rate: float, events: int, profile: cProfile.Profile | None = None, count: int = 1
) -> Cost:
    """Serve ``count`` apps like one of ``bench.flow.latency`` in this thread while events come."""
    names = [f"{app}{number or ''}" for number in range(count)]
    with tempfile.TemporaryDirectory(prefix="bench-slot-") as directory:
        nats = server.start(Path(directory, "nats"))
        hand = Hand(Path(directory), nats)
        try:
            for name in names:
                admitted(hand, Instances(hand, name, app=HEAD + APPS[app]))
            hand.serving.report_s = 1.0
            _serve(hand, nats.port, names, _RATE, max(_WARM_UP, count))
            with profile or contextlib.nullcontext():
                busy_s, runs, found = _serve(hand, nats.port, names, rate, events)
            wrong = found.repeats + found.missing
            return Cost(app, runs, busy_s / runs * 1000, found.p50_ms, found.p99_ms, wrong)
        finally:
            hand.end()
            nats.stop()


def measure_alone(app: str, events: int) -> list[float]:
    """Processor time of this thread for each event, ms; the next one follows its output.

    On a busy machine the lowest times are about those of one at rest, as the caches are warm then.
    """
    busy_ms: list[float] = []
    with tempfile.TemporaryDirectory(prefix="bench-slot-") as directory:
        nats = server.start(Path(directory, "nats"))
        hand = Hand(Path(directory), nats)
        try:
            admitted(hand, Instances(hand, app, app=HEAD + APPS[app]))
            hand.serving.report_s = 1.0
            with Wire(nats.port) as wire:
                wire.send(f"SUB mesh.{app}.Output 2\r\n".encode())
                wire.flush()
                for n in range(-_WARM_UP, events):
                    body = b'{"n": %d, "v": %d.5}' % (_BASE + n, _BASE + n)
                    wire.send(b"PUB mesh.%b.Input %d\r\n%b\r\n" % (app.encode(), len(body), body))
                    busy_ms.append(0.0)
                    has_output = False
                    while not has_output:
                        began_s = time.thread_time()
                        hand.serving.round(_SILENCE_S)
                        busy_ms[-1] += (time.thread_time() - began_s) * 1000
                        # The first event of a pattern has no output.
                        has_output = _has_output(wire) or len(busy_ms) == 1
            return busy_ms[_WARM_UP:]
        finally:
            hand.end()
            nats.stop()


def _has_output(wire: Wire) -> bool:
    """Whether an event comes soon; more than a round may be needed for it."""
    while select.select([wire.socket], [], [], _SOON_S)[0]:
        data = wire.receive()
        if b"MSG mesh." in data:
            return True
        if b"PING" in data:
            wire.send(b"PONG\r\n")
    return False


def _serve(
    hand: Hand, port: int, apps: Sequence[str], rate: float, events: int
) -> tuple[float, int, Measured]:
    """Processor time of this thread, seconds, runs, and what the meter saw."""
    job = Job(Access(port), Access(port), tuple(apps), "Output", rate, events)
    hand.told.clear()
    never, held = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-m", "bench.flow.meter", job.to_json()],
        stdout=subprocess.PIPE, preexec_fn=die_with_parent(),
    ) as meter:  # fmt: skip
        began_s = time.thread_time()
        while meter.poll() is None:
            hand.serving.round(0.1, never)
            hand.at_work.rest()
        busy_s = time.thread_time() - began_s
        assert meter.stdout is not None
        found = Measured(**json.loads(meter.stdout.read()))
    os.close(never)
    os.close(held)
    for parts in hand.serving.served.values():
        hand.told += [one.report() for one in parts.values() if one.ends is not None]
    return busy_s, sum(outcome.runs for outcome in hand.told), found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a line for each app."""
    parser = argparse.ArgumentParser(prog="bench.flow.slot", description=__doc__)
    parser.add_argument("--app", action="append", choices=list(APPS), help="all if not given")
    parser.add_argument("--rate", type=float, default=_RATE, help="events a second")
    parser.add_argument("--events", type=int, default=_EVENTS, help="of each app")
    parser.add_argument("--apps", type=int, default=1, help="apps that get the events in turn")
    parser.add_argument(
        "--alone", action="store_true", help="each event after the output of the one before"
    )
    parser.add_argument("--profile", type=Path, help="keep a profile of the slot in this file")
    given = parser.parse_args(arguments)
    profile = cProfile.Profile() if given.profile else None
    for app in given.app or APPS:
        if given.alone:
            lowest, middle = np.percentile(measure_alone(app, given.events), [0, 50])
            print(f"{app:10} {lowest:6.3f} ms of the slot for an event, median {middle:.3f}")
            continue
        cost = measure(app, given.rate, given.events, profile, given.apps)
        print(
            f"{cost.app:10} {cost.run_ms:6.3f} ms of the slot for each of {cost.runs} runs;"
            f" p50 {cost.p50_ms:.2f} ms, p99 {cost.p99_ms:.2f} ms; {cost.wrong} events wrong",
            flush=True,
        )
    if profile is not None:
        profile.dump_stats(given.profile)


if __name__ == "__main__":
    main()
