"""A batch writes the changed part of a state, not all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from mesh.language.parser import parse
from mesh.operators.executor import Executor, InputRun
from mesh.plan.bind import bind

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFINE = "define stream S (k string, a int, b long); define stream T (k string, a int, b long); "
KEYED = "partition with (k of S) begin {} end;"
APPS = {
    "a window": "from S#window.time(1 hour) select k, a insert all events into O;",
    "sessions": "from S#window.session(1 hour, k) select k, a insert all events into O;",
    "a cron window": "from S#window.cron('0 0 0 * * ?') select k, a insert all events into O;",
    "a pattern": "from every e1=S -> e2=T[b == e1.b] within 1 hour select e1.k insert into O;",
    "counts": "from every e1=S<2:3> -> e2=T[b == e1[0].b] select e1[0].k insert into O;",
    "and": "from every e1=S -> e2=T[b == e1.b] and e3=T[a == e1.a] select e1.k insert into O;",
    "absence": "from every e1=S -> not T[b == e1.b] for 1 hour select e1.k insert into O;",
    "a sequence": "from every e1=S, e2=S*, e3=T select e1.k insert into O;",
    "a block of time": "from S select k, a output all every 1 hour insert into O;",
    "a block of events": "from S select k, a output all every 50000 events insert into O;",
    "snapshots": "from S#window.time(1 hour) select k, a output snapshot every 1 hour "
    "insert into O;",
    "snapshots of groups": "from S#window.time(1 hour) select b, sum(a) as n group by b "
    "output snapshot every 1 hour insert into O;",
    "windows of keys": KEYED.format("from S#window.length(5) select k, sum(a) as n insert into O;"),
    "absence by key": KEYED.format(
        "from every e1=S -> not S for 1 hour select e1.k insert into O;"
    ),
    "blocks of keys": KEYED.format("from S select k, a output last every 1 hour insert into O;"),
}
_START_MS = 1_600_000_000_000


def batches(text: str, rows: int) -> Iterator[tuple[Executor, InputRun]]:
    """An executor, and batches of so many events, with keys in turn."""
    app = bind(parse(DEFINE + text))
    executor = Executor(app, ("O",))
    streams = {stream for stream in ("S", "T") if f"={stream}" in text or stream == "S"}
    for first in range(0, 1_000_000_000, rows):
        at = np.arange(first, first + rows)
        columns: list[pa.Array[Any]] = [
            pa.array([f"k{number % 5000}" for number in at.tolist()]),
            pa.array((at % 97).astype(np.int32)),
            pa.array(at),
        ]
        events = pa.RecordBatch.from_arrays(columns, names=["k", "a", "b"])
        run = InputRun("S", at + 1, _START_MS + at, events)
        executor.run([run], dict.fromkeys(streams, int(_START_MS + at[-1])))
        yield executor, run


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", APPS)
def test_a_small_batch_writes_little_of_a_large_state(name: str) -> None:
    known: set[str] = set()
    sizes: list[tuple[int, int]] = []
    made = batches(APPS[name], 200)
    for executor, _ in (next(made) for _ in range(101)):
        pieces = executor.snapshot().pieces
        written = sum(piece.nbytes for key, piece in pieces.items() if key not in known)
        sizes.append((written, sum(piece.nbytes for piece in pieces.values())))
        known = set(pieces)
    # One batch may close a piece; the usual size of a batch's writes counts.
    written, whole = np.median(np.array(sizes[-20:]), axis=0).tolist()
    assert whole > 150_000
    assert written < 0.4 * whole


@pytest.mark.parametrize("window", ["sort(10, b)", "session(1 sec, k)"])
def test_rows_that_have_left_leave_the_state(window: str) -> None:
    made = batches(f"from S#window.{window} select k, a insert into O;", 1000)
    for _ in range(15):
        executor, _ = next(made)
    pieces = executor.snapshot().pieces
    assert sum(piece.num_rows for piece in pieces.values()) < 11_000


PURGED = """@App:name('Purged')
define stream S (k string, v int);
@purge(enable='true', interval='1 sec', idle.period='1 sec')
partition with (k of S) begin
  from S#window.length(2) select k, sum(v) as t insert into O;
end;
"""


def test_a_piece_with_the_name_of_an_earlier_one_has_its_content() -> None:
    executor = Executor(bind(parse(PURGED)), ["O"])
    seen: dict[str, Any] = {}
    # Key a is purged, and b is used as much later as a was.
    for sequence, (time_ms, key) in enumerate([(1000, "a"), (2000, "b"), (3000, "b")], 1):
        rows = pa.RecordBatch.from_pydict({"k": [key], "v": pa.array([1], pa.int32())})
        given = InputRun("S", np.array([sequence]), np.array([time_ms]), rows)
        executor.run([given], {"S": time_ms})
        for name, piece in executor.snapshot().pieces.items():
            assert seen.setdefault(name, piece).equals(piece), name
