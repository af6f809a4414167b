"""Progress of work that takes long, on standard error: what is done, how far, how long it may take.

    with working('"Shop" and "ShopNext" read their input', at_most_s=60) as work:
        work.tell(done=300, total=400)

Work of less than two seconds shows nothing.  On a terminal one line is redrawn in place, and
removed at the end.  Elsewhere lines are written: when the text changes, and after ever longer
pauses.  Work inside other work belongs to the line of the outer one.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Time from which work shows itself, seconds: with the start of a command it is about two.
SILENT_S: Final = 1.0
#: Interval of redrawing on a terminal, and the shortest pause between lines elsewhere.
_DRAW_S: Final = 0.25
_LINE_S: Final = 2.0
#: A pause between lines without news is this part of the time so far.
_PAUSE_SHARE: Final = 0.5
_MINUTES_FROM_S: Final = 120.0


class Work:
    """One piece of work; other threads may tell how far it is."""

    def __init__(
        self, what: str | Callable[[], str], at_most_s: float | None, about_s: float | None
    ) -> None:
        self._what = what
        self.done = 0
        #: 0 while it is unknown.
        self.total = 0
        self._at_most_s = at_most_s
        self._about_s = about_s
        self._started_s = time.monotonic()

    def tell(self, what: str = "", done: int = 0, total: int = 0) -> None:
        """Say what is done now, if that has changed, and how much of a total is done."""
        self._what = what or self._what
        self.done, self.total = done, total

    @property
    def what(self) -> str:
        """The work that is done now."""
        return self._what if isinstance(self._what, str) else self._what()

    @property
    def age_s(self) -> float:
        """Time since it began."""
        return time.monotonic() - self._started_s

    def line(self) -> str:
        """``app "Shop" starts (1 of 3, 4 s, about 8 s left) ...``."""
        age_s = self.age_s
        parts = [f"{self.done:,} of {self.total:,}"] if self.total else []
        parts.append(_duration(age_s))
        if self.total and self.done:
            parts.append(f"about {_duration(age_s * (self.total / self.done - 1))} left")
        elif self._about_s is not None:
            parts.append(f"usually {_duration(self._about_s)}")
        elif self._at_most_s is not None:
            parts.append(f"at most {_duration(self._at_most_s)}")
        return f"{self.what} ({', '.join(parts)}) ..."


_shown: Work | None = None


@contextmanager
def working(
    what: str | Callable[[], str], *, at_most_s: float | None = None, about_s: float | None = None
) -> Iterator[Work]:
    """Show progress until the block ends.

    Args:
        what: is done, as ``app "Shop" starts``; a function is asked whenever it is shown.
        at_most_s: time after which it is given up, seconds.
        about_s: time that it usually takes, seconds.
    """
    global _shown
    if _shown is not None:
        yield _shown
        return
    work = _shown = Work(what, at_most_s, about_s)
    ended = threading.Event()
    shower = threading.Thread(target=_show, args=(work, ended), name="progress", daemon=True)
    shower.start()
    try:
        yield work
    finally:
        _shown = None
        ended.set()
        shower.join()


@contextmanager
def hidden() -> Iterator[None]:
    """Show nothing until the block ends: it has a display of its own."""
    global _shown
    outer = _shown
    _shown = outer or Work("", None, None)
    try:
        yield
    finally:
        _shown = outer


def _show(work: Work, ended: threading.Event) -> None:
    if ended.wait(SILENT_S):
        return
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        _redraw(work, ended)
    else:
        _write_lines(work, ended)


def _write_lines(work: Work, ended: threading.Event) -> None:
    said, said_s = "", 0.0
    while True:
        age_s = work.age_s
        # A number that grows is no news of its own.
        what = re.sub(r"[\d,.]+", "", work.what)
        is_news = what != said and age_s - said_s >= (_LINE_S if said else 0)
        if is_news or age_s - said_s >= max(_LINE_S, _PAUSE_SHARE * age_s):
            said, said_s = what, age_s
            sys.stderr.write(f"{work.line()}\n")
            sys.stderr.flush()
        if ended.wait(_DRAW_S):
            return


def _redraw(work: Work, ended: threading.Event) -> None:
    # Only for work that takes long.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    text = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    with Progress(
        BarColumn(bar_width=16),
        TextColumn("{task.description}", markup=False, table_column=text),
        console=Console(stderr=True),
        transient=True,
        expand=True,
        # Results that go elsewhere must not be drawn here.
        redirect_stdout=sys.stdout.isatty(),
    ) as shown:
        task = shown.add_task(work.line(), total=None)
        while not ended.wait(_DRAW_S):
            shown.update(
                task, description=work.line(), completed=work.done, total=work.total or None
            )


def _duration(time_s: float) -> str:
    return f"{time_s:.0f} s" if time_s < _MINUTES_FROM_S else f"{time_s / 60:.0f} min"
