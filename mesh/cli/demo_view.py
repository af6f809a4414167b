"""Views of the demo: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from mesh.cli.output import show_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.model.values import JsonObject

#: Interval of updates of the view.
_EVERY_S = 0.25
_LINE_EVERY_S = 2.0


@dataclass
class StreamTally:
    """Output of one stream."""

    events: int = 0
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=5))
    #: Broker's time of the output minus that of the input that caused it, ms.
    latency_ms: list[float] = field(default_factory=list)
    #: Number of times that each row was received.
    rows: Counter[bytes] = field(default_factory=Counter)


def make_view(stream: TextIO) -> DemoView:
    """The view for ``stream``: live on a terminal."""
    return LiveView() if stream.isatty() else DemoView()


class DemoView:
    """Progress and results of the demo as plain lines, at most one every two seconds."""

    def __init__(self) -> None:
        self._next_s = {"in": 0.0, "out": 0.0}

    def say(self, text: str) -> None:
        """Print a permanent line."""
        print(text, flush=True)

    def published(self, done: int, total: int, rate: float) -> None:
        """``done`` of ``total`` events are published, at ``rate`` a second: from time to time."""
        if done >= total or self._is_time("in"):
            self.say(f"published {done:,} of {total:,} events, {rate:,.0f}/s")

    def outputs(self, tallies: dict[str, StreamTally]) -> None:
        """An output has arrived: counts and one row of each stream, from time to time."""
        if self._is_time("out"):
            for stream, tally in tallies.items():
                latest = tally.recent[-1] if tally.recent else ""
                self.say(f"  {stream:<15} {tally.events:>8,}  {latest}")

    def close(self) -> None:
        """End the live part, if there is one."""

    def summary(
        self,
        findings: Sequence[tuple[str, str]],
        outputs: Sequence[tuple[object, ...]],
        instances: Sequence[JsonObject],
        hints: Sequence[str],
    ) -> None:
        """Print the last screen: findings, tables and hints."""
        print()
        for name, text in findings:
            print(f"{name:<8}{text}")
        streams = ("output stream", "events", "lost", "doubled", "steady ms p50", "p99")
        show_table(streams, outputs)
        columns = ("instance", "worker", "events in", "events out", "batch ms p50")
        shown = [
            (i["instance"], i["worker"], i["events_in"], i["events_out"], i["batch_ms_p50"])
            for i in instances
        ]
        show_table(columns, shown)
        print("Try next:")
        for hint in hints:
            print(f"  {hint}")
        # The cluster ends before this process does.
        sys.stdout.flush()

    def _is_time(self, what: str) -> bool:
        now_s = time.monotonic()
        if now_s < self._next_s[what]:
            return False
        self._next_s[what] = now_s + _LINE_EVERY_S
        return True


class LiveView(DemoView):
    """A progress bar and the latest rows of each stream, redrawn in place."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._console = Console()
        self._progress = Progress(
            TextColumn("published"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
        )
        self._task = self._progress.add_task("", rate="", total=None, visible=False)
        self._tallies: dict[str, StreamTally] = {}
        self._drawn_s = 0.0
        self._live: Live | None = Live(
            get_renderable=self._draw, console=self._console, auto_refresh=False, transient=True
        )
        self._live.start()

    def say(self, text: str) -> None:
        """Print it above the live part."""
        self._console.print(text, markup=False, highlight=False)

    def published(self, done: int, total: int, rate: float) -> None:
        """Move the bar."""
        self._progress.update(
            self._task, completed=done, total=total, rate=f"{rate:,.0f}/s", visible=True
        )
        self._refresh(done >= total)

    def outputs(self, tallies: dict[str, StreamTally]) -> None:
        """Show the latest rows."""
        self._tallies = tallies
        self._refresh(False)

    def close(self) -> None:
        """Remove the live part."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _refresh(self, now: bool) -> None:
        now_s = time.monotonic()
        if self._live is not None and (now or now_s - self._drawn_s >= _EVERY_S):
            self._drawn_s = now_s
            self._live.refresh()

    def _draw(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2), expand=True)
        for stream, tally in self._tallies.items():
            rows = Text("\n".join(tally.recent), style="dim", no_wrap=True, overflow="ellipsis")
            table.add_row(Text(stream, style="bold"), f"{tally.events:,}", rows)
        return Group(self._progress, table)
