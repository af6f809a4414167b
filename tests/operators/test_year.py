"""The demo's app over the whole year of weather agrees with the reference engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mesh.language.parser import parse
from mesh.operators.executor import Executor, InputRun
from mesh.plan.bind import bind
from mesh.testing import weather
from tests.support import paths
from tools import expectations

CASES = paths.CASES / "temperature"
APP = paths.EXAMPLE


@pytest.fixture(scope="module")
def expected() -> expectations.Expectations:
    return expectations.load(CASES)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("batch_rows", [1000, 26_115])
def test_the_year_equals_the_reference_engine(
    batch_rows: int, expected: expectations.Expectations
) -> None:
    year = weather.load()
    executor = Executor(bind(parse(APP.read_text())), expectations.STREAMS)
    rows: dict[str, list[dict[str, Any]]] = {stream: [] for stream in expectations.STREAMS}
    times: dict[str, list[int]] = {stream: [] for stream in expectations.STREAMS}
    positions: list[int] = []
    for start in range(0, weather.ROWS, batch_rows):
        part = year.rows.slice(start, batch_rows)
        time_ms = year.time_ms[start : start + batch_rows]
        sequence = np.arange(start + 1, start + 1 + len(time_ms))
        run = InputRun("TempStream", sequence, time_ms, part)
        for output in executor.run([run], {"TempStream": int(time_ms[-1])}):
            rows[output.stream] += output.rows.to_pylist()
            times[output.stream] += (output.time_ms - weather.BASE_MS).tolist()
            positions += output.position.tolist()
    for stream in expectations.STREAMS:
        assert expected.differences(stream, rows[stream]) == []
        assert times[stream] == expected.times_ms[stream]
    assert sorted(positions) == list(range(1, executor.outputs_count + 1))


@pytest.mark.slow
def test_a_changed_row_and_a_changed_order_are_seen(expected: expectations.Expectations) -> None:
    rows = expected.rows["AlertStream"]
    changed = [{**rows[0], "finalTemp": np.nextafter(rows[0]["finalTemp"], 100).item()}, *rows[1:]]
    turned = rows[::-1]
    assert expected.differences("AlertStream", changed)
    assert expected.differences("AlertStream", changed, ordered=False)
    assert expected.differences("AlertStream", turned)
    assert not expected.differences("AlertStream", turned, ordered=False)
    assert expected.differences("AlertStream", [*rows, rows[0]], ordered=False)
