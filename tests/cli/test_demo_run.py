"""The demo's parts and its last screen, without a cluster.

The screen of the demo.
"""

from __future__ import annotations

import io
import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

import pytest

from mesh.cli import demo_run
from mesh.cli.demo_run import OUTPUTS, Demo, expected_rows, find_example, make_view, parts_of
from mesh.errors import MeshError
from mesh.operators import loop_cache

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator
    from pathlib import Path

ROWS = 900


@pytest.fixture(scope="module")
def expected() -> dict[str, Counter[bytes]]:
    return expected_rows(find_example(), ROWS)


@pytest.fixture
def demo(expected: dict[str, Counter[bytes]]) -> Iterator[Demo]:
    """A demo that has received everything."""
    view = make_view(io.StringIO())
    made = Demo(view, ROWS, age_s=1.0)
    made.events = [(number, {}) for number in range(ROWS)]
    made.killed, made.pause_s = "worker-1", 2.25
    for stream, rows in expected.items():
        made.tallies[stream].rows = rows.copy()
        made.tallies[stream].events = rows.total()
    yield made
    view.close()


@pytest.mark.parametrize(
    ("events", "steady", "burst"),
    [(26_115, 1000, 25_115), (900, 300, 600), (1, 0, 1), (3001, 1000, 2001)],
)
def test_the_year_is_divided_and_a_small_part_of_it_too(
    events: int, steady: int, burst: int
) -> None:
    assert parts_of(events) == (steady, burst)


def test_the_last_screen_names_each_row_that_is_lost_or_doubled(
    demo: Demo, expected: dict[str, Counter[bytes]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert all(expected[stream] for stream in OUTPUTS)
    demo.tallies[OUTPUTS[0]].latency_ms = [10.0, 20.0, 30.0]
    demo.sum_up({"instances": []}, expected, "http://127.0.0.1:9543")
    said = capsys.readouterr().out
    assert "steady  300 events at 200/s: output 20 ms after its event (median), 30 ms" in said
    assert "worker-1: its group emitted nothing for 2.2 s; 0 rows lost, 0 doubled\n" in said
    assert "address http://127.0.0.1:9543 has the API and the dashboard" in said
    assert "Try next:" in said

    rows = demo.tallies[OUTPUTS[1]].rows
    first, second = list(rows)[:2]
    rows[first] -= 1
    rows[second] += 1
    demo.sum_up({"instances": []}, expected, "http://127.0.0.1:9543")
    assert "; 1 rows lost, 1 doubled\n" in capsys.readouterr().out
    assert not demo.is_exact


@pytest.mark.parametrize("place", ["mesh", "my mesh"])
def test_commands_to_try_are_found_as_the_first_says(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / place / ".venv"
    (made / "bin").mkdir(parents=True)
    program = made / "bin" / "mesh"
    program.touch(0o755)
    (made / "bin" / "activate").write_text(f"PATH='{program.parent}':$PATH\n")
    monkeypatch.setattr(sys, "prefix", str(made))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    command, found, _ = demo_run.hints()[0].partition("  ")
    assert found
    said = subprocess.run(
        ["sh", "-c", f"{command}; command -v mesh"], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == str(program)
    monkeypatch.setenv("PATH", str(program.parent))
    assert demo_run.hints() == demo_run.HINTS


class Workers:
    """Nodes of a manager whose worker is ready at the third question."""

    def __init__(self) -> None:
        self.asked = 0

    def nodes(self) -> list[dict[str, Any]]:
        self.asked += 1
        return [{"role": "worker", "ready": self.asked > 2}]


async def test_time_to_compile_is_no_time_to_start(
    demo: Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_run, "_READY_S", 0.0)
    workers = Workers()
    monkeypatch.setattr(loop_cache, "has_usual", lambda: workers.asked > 2)
    await demo.until_ready(cast("Any", workers), 1)
    monkeypatch.setattr(loop_cache, "has_usual", lambda: True)
    with pytest.raises(MeshError, match="workers are not ready"):
        await demo.until_ready(cast("Any", Workers()), 1)


def test_quantiles_are_values_that_were_there() -> None:
    assert demo_run.quantiles([]) == (None, None)
    assert demo_run.quantiles([7.0]) == (7.0, 7.0)
    assert demo_run.quantiles([float(n) for n in range(101)]) == (50.0, 99.0)


def test_the_demo_speaks_in_plain_lines_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = demo_run.make_view(io.StringIO())
    view.say("hello")
    view.published(5, 10, 2.5)
    view.published(10, 10, 2.5)
    tally = demo_run.StreamTally(3)
    tally.recent.append('{"roomNo":100}')
    view.outputs({"AlertStream": tally})
    instance = {
        "instance": "T-g-1", "worker": "w1", "events_in": 10, "events_out": 3, "batch_ms_p50": 1.5,
    }  # fmt: skip
    rows = [("AlertStream", 3, 0, 0, 1.0, 2.0)]
    view.summary([("steady", "10 events")], rows, [instance], ["mesh init shop"])
    view.close()
    said = capsys.readouterr().out
    assert "\x1b" not in said
    for words in (
        "published 10 of 10 events",
        '{"roomNo":100}',
        "AlertStream",
        "T-g-1",
        "w1",
        "steady  10 events",
        "  mesh init shop",
    ):
        assert words in said
