"""State of a pattern as a log: a batch writes what comes and goes."""

from __future__ import annotations

import pytest

from tests.support.patterns import shape
from tests.support.recorder import END_MS, Log, Recorder


@pytest.mark.slow
def test_a_batch_writes_what_comes_and_goes() -> None:
    text = shape("every e1=S -> e2=T[k == e1.k]", "e1.s, e2.v as b")
    recorder = Recorder(text)
    waiting, batch_size = 50_000, 100
    log: Log = {
        "S": [(1000 + n, [n, float(n), "x"]) for n in range(waiting + 1000)],
        "T": [(1000 + waiting + n, [(n * 7919) % waiting, 0.0]) for n in range(1000)],
    }

    def run(first: int, last: int, *streams: str) -> None:
        runs = [recorder.part(log, stream, first, last) for stream in streams]
        recorder.run(runs, dict.fromkeys(recorder.inputs, log[streams[0]][last - 1][0]))

    def size(names: set[str]) -> int:
        return sum(pieces[name].nbytes for name in names)

    run(0, waiting, "S")
    pieces = recorder.executor.snapshot().pieces
    before = {name for name in pieces if "/match/" in name}
    whole = size(before)
    written = []
    for start in range(0, 1000, batch_size):
        if start % 200:
            run(waiting + start, waiting + start + batch_size, "S")
        else:
            run(start // 2, start // 2 + batch_size, "T")
        pieces = recorder.executor.snapshot().pieces
        after = {name for name in pieces if "/match/" in name}
        written.append(size(after - before))
        before = after
    assert len(recorder.rows) == 500
    # A bit for each waiting match, and the events, some of them together with the previous one.
    assert sum(written) / len(written) < waiting // 8 + 300 * batch_size < whole // 50
    # Events of the last moment wait for one another.
    recorder.run([], {"S": 10**6, "T": 10**6})
    pieces = recorder.executor.snapshot().pieces
    recorder.run([], {"S": 10**6 + 5, "T": 10**6 + 5})
    assert recorder.executor.snapshot().pieces.keys() == pieces.keys()
    recorder.restart()
    run(500, 1000, "T")
    recorder.run([], {"S": END_MS, "T": END_MS})
    assert len(recorder.rows) == 1000
