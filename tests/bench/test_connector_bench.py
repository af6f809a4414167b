"""Checks and output of the bench: targets, ratios, exit status; and that its limits are true."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from bench import measuring
from bench.connector import __main__ as bench_main
from bench.connector import events, plain, report
from bench.connector.harness import Bench, Figure, figure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def same_signals() -> Iterator[None]:
    """The runner sets handlers for the life of its process, which here continues."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("value", "limit", "target", "at_least", "met"),
    [
        (5.0, None, None, True, None),
        (5.0, None, 5.0, True, True),
        (5.0, None, 6.0, True, False),
        (5.0, None, 6.0, False, True),
        (5.0, None, 4.0, False, False),
        # With a limit, the target is one of the ratio.
        (5.0, 10.0, 0.5, True, True),
        (5.0, 10.0, 0.6, True, False),
    ],
)
def test_a_figure_knows_whether_its_target_is_met(
    value: float, limit: float | None, target: float | None, at_least: bool, met: bool | None
) -> None:
    one = Figure("name", value, "rows/s", target, at_least, limit=limit)
    assert one.is_met is met


def test_a_figure_is_the_median_of_its_runs() -> None:
    one = figure("name", [3.0, 1.0, 2.0], "ms")
    assert (one.value, one.runs) == (2.0, (3.0, 1.0, 2.0))


def test_what_is_kept_has_every_run_the_machine_and_the_commit() -> None:
    kept = report.document([figure("name", [3.0, 1.0, 2.0], "ms", limit=4.0)], ["one"], 1.0)
    assert json.loads(json.dumps(kept)) == kept | {
        "figures": [{**kept["figures"][0], "runs": [3.0, 1.0, 2.0]}]
    }
    assert kept["figures"][0]["ratio"] == 0.5
    assert kept["failures"] == ["one"]
    assert kept["machine"]["nats_server"].startswith("2.")
    assert {"cores", "cpu", "memory_gb", "python", "pyspark", "java"} <= set(kept["machine"])


@pytest.mark.parametrize(
    ("arguments", "figures", "failures", "status"),
    [
        ([], [Figure("a", 1, "x", 2)], [], 0),
        (["--check"], [Figure("a", 1, "x", 2)], [], 1),
        (["--check"], [Figure("a", 2, "x", 2), Figure("b", 1, "x")], [], 0),
        ([], [], ["reading: it broke"], 1),
    ],
)
def test_the_exit_status_tells_misses_only_when_asked_and_failures_always(
    arguments: list[str],
    figures: list[Figure],
    failures: list[str],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(measuring, "all_measured", lambda *_: (figures, failures))
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    assert bench_main.main(arguments) == status
    (path,) = (tmp_path / "results").iterdir()
    assert len(json.loads(path.read_text())["figures"]) == len(figures)


def test_a_measurement_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_main.main(["--only", "reding"]) == 2
    assert "reding" in capsys.readouterr().err


@pytest.mark.parametrize("size", [70, 120])
def test_the_events_are_of_the_size_they_are_said_to_be(size: int) -> None:
    texts = events.as_json(size, 0, 1000)
    assert abs(sum(map(len, texts)) / 1000 - size) < 5
    names = [column.split()[0] for column in events.SCHEMAS[size].split(", ")]
    assert list(json.loads(texts[-1])) == names


@pytest.mark.thorough
@pytest.mark.nats
def test_the_plain_programs_publish_and_read_all_of_it() -> None:
    with Bench() as bench:
        port = bench.server.port
        bench.create_stream("A", "a")
        plain.together([plain.Publish(port, "a", 70, 0, 20_500)])
        plain.together([plain.PublishAtomically(port, "a", 120, 0, 2_500)])
        assert bench.messages("A") == 23_000
        jobs: list[plain.Job] = [plain.CountBytes(port, "A", 23_000, pull=1000) for _ in range(2)]
        assert plain.together(jobs) > 0
        assert plain.together([plain.NatsPyLoop(port, "A", 2_000, 500)]) > 0
        directory = bench.directory
    assert not directory.exists()
