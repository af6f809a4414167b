"""The weather of the demo."""

from __future__ import annotations

import numpy as np

from mesh.testing import weather


def test_the_weather_is_a_year_of_three_airports_in_order() -> None:
    year = weather.load(base_ms=0)
    assert year.rows.num_rows == weather.ROWS
    assert year.time_ms[0] == 0
    assert (np.diff(year.time_ms) >= 0).all()
    assert year.rows.column("temp").null_count == 1
    assert year.rows.slice(0, 3).to_pylist() == [
        {"deviceID": 1, "roomNo": 100, "temp": 39.02},
        {"deviceID": 2, "roomNo": 101, "temp": 39.02},
        {"deviceID": 3, "roomNo": 102, "temp": 39.92},
    ]
