"""A week of a healthy app under load, with restarts: the verification finds nothing.

Two groups: one copies events by key, one sums them.  Each minute the evidence is read as the
background reads it, one thing after the other while the app goes on: what a manager sees of the
cluster, then states, markers and streams.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from mesh.control.verification import (
    Evidence,
    MarkerEvidence,
    Producer,
    SnapshotEvidence,
    StreamEvidence,
    findings,
)
from mesh.model.cluster import AppRecord
from mesh.plan.build import plan
from mesh.spark.instance_io import POSITIONS_PER_MESSAGE
from mesh.spark.producers import producers

TEXT = """@App:name('A')
define stream S (k string, a int);
@dist(execGroup='copy') from S select k, a insert into T;
@dist(execGroup='sums', partitions='2')
from T select k, sum(a) as total group by k insert into U;
"""
SPEC = plan(TEXT, partitions=2).spec
RECORD = AppRecord(SPEC, "i1", 0)
PRODUCERS = {pair: Producer(*of) for pair, of in producers(SPEC.groups, "i1").items()}
WEEK_S = 7 * 86_400
ROUND_S = 60.0
#: Hours of retention are enough to delete messages all week.
MAX_AGE_S = 4 * 3600.0
SNAPSHOT_S = 30.0
RESTARTS_A_DAY = 12
COPIES = ("mesh-A-T-by-k-0", "mesh-A-T-by-k-1")


@dataclass
class Stream:
    """Messages of a stream; those of a step have one time."""

    last: int = 0
    first: int = 1
    ages: deque[tuple[float, int]] = field(default_factory=deque)
    marker: int = 0
    deleted: deque[int] = field(default_factory=deque)

    def add(self, now_s: float, count: int, *, marks: bool = False) -> None:
        self.last += count
        if marks and count:
            # A marker ends the batch; the one before is deleted.
            if self.marker:
                self.deleted.append(self.marker)
            self.last += 1
            self.marker = self.last
        self.ages.append((now_s, self.last))
        while self.ages and self.ages[0][0] < now_s - MAX_AGE_S:
            self.first = self.ages.popleft()[1] + 1
        while self.deleted and self.deleted[0] < self.first:
            self.deleted.popleft()

    def evidence(self, name: str, subject: str, now_s: float) -> StreamEvidence:
        count = self.last - self.first + 1
        return StreamEvidence(
            name, (subject, f"mesh._marker.{name}.>"), max_age_s=MAX_AGE_S, max_bytes=1 << 30,
            bytes=200 * count, messages=count - len(self.deleted), first=self.first,
            last=self.last, first_age_s=now_s - self.ages[0][0] if self.ages else 0.0,
            deleted=tuple(self.deleted), deleted_count=len(self.deleted),
        )  # fmt: skip


class App:
    """The app's streams, its groups' positions and what they have stored."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.now_s = 0.0
        self.streams = {name: Stream() for name in ("mesh-A-S", "mesh-A-U", *COPIES)}
        self.epochs = {"copy": 1, "sums": 1}
        self.written = dict(self.epochs)
        self.away_until_s = dict.fromkeys(self.epochs, 0.0)
        self.copied = 0
        self.summed = dict.fromkeys(COPIES, 0)
        self.rows = dict.fromkeys(COPIES, 0)
        self.emitted = dict.fromkeys(COPIES, 0)
        self.snapshots: dict[str, SnapshotEvidence] = {}
        self.stored_s = 0.0
        self.restarts = 0

    def advance(self, seconds: float) -> None:
        """Let the app work for some seconds."""
        self.now_s += seconds
        wave = 0.5 - 0.5 * math.cos(2 * math.pi * self.now_s / 86_400)
        burst = 10 if self.draw.random() < 0.01 else 1
        self.streams["mesh-A-S"].add(self.now_s, round(seconds * 20 * wave * burst))
        if self.draw.random() < seconds * RESTARTS_A_DAY / 86_400:
            self._restart(self.draw.choice(("copy", "sums")))
        if self.now_s >= self.away_until_s["copy"]:
            self._copy()
        if self.now_s >= self.away_until_s["sums"]:
            for name in COPIES:
                self._sum(name)

    def _restart(self, group: str) -> None:
        self.restarts += 1
        self.epochs[group] += 1
        self.away_until_s[group] = self.now_s + self.draw.uniform(1, 120)
        if group == "sums":
            for name, one in self.snapshots.items():
                self.summed[name] = one.positions[name]

    def _copy(self) -> None:
        source = self.streams["mesh-A-S"]
        count = source.last - self.copied
        self.copied = source.last
        share = round(count * self.draw.uniform(0.3, 0.7))
        for name, some in zip(COPIES, (share, count - share), strict=True):
            self.streams[name].add(self.now_s, some, marks=True)
        self.written["copy"] = self.epochs["copy"]

    def _sum(self, name: str) -> None:
        stream = self.streams[name]
        # Rows that an earlier instance has emitted are not emitted again.
        out = self.streams["mesh-A-U"]
        fresh = max(0, stream.last - max(self.emitted[name], self.summed[name]))
        out.add(self.now_s, fresh, marks=True)
        self.emitted[name] = max(self.emitted[name], stream.last)
        self.rows[name] += fresh
        self.summed[name] = stream.last
        self.written["sums"] = self.epochs["sums"]
        if self.now_s - self.stored_s > SNAPSHOT_S or name not in self.snapshots:
            self.stored_s = self.now_s if name == COPIES[-1] else self.stored_s
            part = name[-1]
            self.snapshots[name] = SnapshotEvidence(
                "sums", part, self.epochs["sums"], {name: stream.last}
            )

    def evidence(self) -> Evidence:
        """Evidence as the background gathers it, with pauses between its looks."""
        epochs, waiting = dict(self.epochs), self.streams["mesh-A-S"].last - self.copied
        self.advance(self.draw.uniform(0, 1))
        snapshots = tuple(self.snapshots.values())
        taken = {("sums", name): one.positions[name] for name, one in self.snapshots.items()}
        self.advance(self.draw.uniform(0, 2))
        markers = [self._marker(stream, producer) for stream, producer in PRODUCERS]
        self.advance(self.draw.uniform(0, 2))
        subjects = {
            c.js_stream(p): c.subject(p) for c in SPEC.channels for p in range(c.partitions)
        }
        streams = {
            name: one.evidence(name, subjects[name], self.now_s)
            for name, one in self.streams.items()
        }
        source = streams["mesh-A-S"]
        taken["copy", "mesh-A-S"] = max(source.first - 1, source.last - waiting)
        known = [one for one in markers if one is not None]
        return Evidence(RECORD, streams, known, snapshots, epochs, PRODUCERS, taken)

    def _marker(self, stream: str, producer: str) -> MarkerEvidence | None:
        of = PRODUCERS[stream, producer]
        if of.inputs:
            last = (self.copied * POSITIONS_PER_MESSAGE + 7) // POSITIONS_PER_MESSAGE
            return MarkerEvidence(stream, producer, last, self.written[of.group])
        name = COPIES[int(producer.rpartition("-")[2])]
        rows = self.rows[name] - 1
        return MarkerEvidence(stream, producer, rows, self.written[of.group]) if rows >= 0 else None


@pytest.mark.thorough
def test_a_week_of_a_healthy_app_has_no_finding() -> None:
    app, before, believed, once = App(Random(7)), set[tuple[str, str]](), [], 0
    rounds = 0
    while app.now_s < WEEK_S:
        app.advance(ROUND_S / 2)
        app.advance(ROUND_S / 2)
        now = {(one.kind, one.where) for one in findings(app.evidence())}
        # The background believes what it sees twice.
        believed += sorted(now & before)
        once += len(now)
        before, rounds = now, rounds + 1
    assert believed == []
    assert once <= app.restarts
    assert rounds > 9_000
    assert app.restarts > 50
    assert app.streams["mesh-A-S"].first > 1


def test_the_same_week_shows_what_is_planted_in_it() -> None:
    app = App(Random(7))
    for _ in range(600):
        app.advance(ROUND_S)
    healthy = app.evidence()
    assert findings(healthy) == []
    lost = replace(healthy, snapshots=())
    assert {one.kind for one in findings(lost)} == {"state-lost"}
    forged = [replace(one, epoch=99) for one in healthy.markers]
    assert {one.kind for one in findings(replace(healthy, markers=forged))} == {"marker-ahead"}
