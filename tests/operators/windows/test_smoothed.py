"""Local extremes of smoothed values."""

from __future__ import annotations

import math
from ast import literal_eval

from tests.support.recorder import Step, at_once, log_of


def test_the_extremes_of_a_wave_are_found_once() -> None:
    wave = [round(10 * math.sin(at / 5), 3) for at in range(120)]
    events: list[Step] = [("S", 1, at, value, "a") for at, value in enumerate(wave)]
    for call in ("kernelMinMax(v, 3, 14, 'minmax')", "kalmanMinMax(v, 1.0, 0.01, 25, 'minmax')"):
        text = f"from S#extrema:{call} select k, v, extremaType as e insert into O;"
        rows = [literal_eval(row) for *_, row in at_once(text, log_of(events, ("S",)))]
        assert len(rows) >= 6
        assert len({k for k, _, _ in rows}) == len(rows)
        assert all((v > 9.8) if e == "max" else (v < -9.8) for _, v, e in rows), call
