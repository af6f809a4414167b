"""Stream functions with a state, run in pieces."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.support.recorder import END_MS, Recorder, Step, log_of, run_in_pieces

#: Events at rising times.
STEP = st.tuples(
    st.just("S"),
    st.integers(0, 12),
    st.one_of(st.none(), st.integers(-1, 2)),
    st.one_of(st.none(), st.floats(-5, 5).map(lambda x: round(x, 1))),
    st.sampled_from([None, "a", "b", "null"]),
)


def pieces_of(text: str, steps: list[Step], data: Any) -> list[Any]:
    recorder = Recorder(text)
    log = log_of(steps, recorder.inputs)
    run_in_pieces(recorder, log, data, 1000)
    recorder.run([], dict.fromkeys(recorder.inputs, END_MS))
    return sorted(recorder.rows, key=lambda row: row[0])
