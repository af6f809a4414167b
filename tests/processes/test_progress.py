"""Progress of long work: lines without a terminal, one line that is redrawn with one."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from mesh.processes import progress
from mesh.processes.progress import Work, hidden, working

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

#: Shows itself at once, and ends with a line of standard input.
PROGRAM = """
import sys
from mesh.processes import progress
progress.SILENT_S = 0
with progress.working("apps are counted", at_most_s=60) as work:
    work.tell(done=1, total=4)
    sys.stdin.readline()
print("done")
"""


class Clock:
    """Time that passes while a thread waits; ``at`` are calls at times of it."""

    def __init__(self, ends_s: float, at: dict[float, Callable[[], None]]) -> None:
        self.now_s = 0.0
        self._ends_s = ends_s
        self._at = dict(at)

    def monotonic(self) -> float:
        return self.now_s

    def wait(self, time_s: float) -> bool:
        self.now_s += time_s
        for due_s in [one for one in self._at if one <= self.now_s]:
            self._at.pop(due_s)()
        return self.now_s >= self._ends_s


def lines(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    work: Callable[[], Work],
    ends_s: float,
    at: Callable[[Work], dict[float, Callable[[], None]]] = lambda _: {},
) -> list[str]:
    """The lines of work that ends after a time, without a terminal."""
    clock = Clock(ends_s, {})
    monkeypatch.setattr(progress, "time", clock)
    made = work()
    clock._at = dict(at(made))
    progress._show(made, clock)  # type: ignore[arg-type]
    return capsys.readouterr().err.splitlines()


def test_short_work_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lines(monkeypatch, capsys, lambda: Work("x", None, None), 1.0) == []


def test_long_work_says_how_far_it_is_and_how_long_it_may_take(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = lines(
        monkeypatch, capsys, lambda: Work("Shop starts", 60, None), 10,
        lambda work: {
            3: lambda: work.tell("Shop is waiting: no session"),
            6: lambda: work.tell(done=1, total=3),
        },
    )  # fmt: skip
    assert found == [
        "Shop starts (1 s, at most 60 s) ...",
        "Shop is waiting: no session (3 s, at most 60 s) ...",
        "Shop is waiting: no session (1 of 3, 6 s, about 12 s left) ...",
    ]


def test_lines_without_news_become_rare(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = lines(monkeypatch, capsys, lambda: Work("x", None, 20), 300)
    assert found[0] == "x (1 s, usually 20 s) ..."
    assert found[-1].startswith("x (3 min, ")
    assert len(found) < 12


def test_work_in_other_work_belongs_to_its_line() -> None:
    with working("outer") as outer, working("inner") as inner:
        inner.tell(done=1, total=2)
    assert (outer.what, outer.done) == ("outer", 1)
    with hidden(), working("unseen"):
        assert not any(one.name == "progress" for one in threading.enumerate())
    with working(lambda: "asked") as one:
        assert one.what == "asked"


def test_a_terminal_has_one_line_that_is_removed() -> None:
    outer, inner = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    shown = ""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE, stdout=inner, stderr=inner, env=environment,
    ) as process:  # fmt: skip
        os.close(inner)
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            while part := os.read(outer, 65536).decode():
                shown += part
                if "1 of 4" in shown and not process.stdin.closed:
                    process.stdin.write(b"\n")
                    process.stdin.close()
        os.close(outer)
    assert process.returncode == 0
    # Each drawing is in place of the one before, and the result in place of the last.
    plain = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown)
    assert re.search(r"apps are counted \(1 of 4, \d+ s, about \d+ s left\) \.\.\.", plain)
    last = shown[shown.rindex("...") :]
    assert "\x1b[2K" in last
    assert last.rstrip().endswith("done")


def test_a_pipe_gets_lines_on_standard_error_alone() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stderr is not None
        said = process.stderr.readline()
        process.stdin.write("\n")
        process.stdin.close()
        assert re.fullmatch(r"apps are counted \((1 of 4, )?\d+ s, .*\) \.\.\.\n", said)
        assert process.stdout is not None
        assert process.stdout.read() == "done\n"
