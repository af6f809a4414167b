"""``python -m bench.language``: how fast SiddhiQL is read, bound and laid out.

Prints lines a second for apps of 200, 2,000 and 20,000 lines, and the time for 1,000 queries.
With ``--check`` a missed target fails: time in proportion to length, and 1,000 queries read and
bound in less than two seconds.  With ``--keep`` the figures go to ``bench/results/``.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from bench import measuring
from bench.connector import report
from mesh.language.layout import format_app
from mesh.language.parser import parse_app
from mesh.plan.bind import bind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

LINES: Final = (200, 2_000, 20_000)
QUERIES: Final = 1_000
QUERIES_TIME_MAX_S: Final = 2.0
#: Maximum slowdown of a line when there are a hundred times as many.
SLOWDOWN_MAX: Final = 2.0
_RUNS: Final = 3

_DEFINITION: Final = "define stream Stream{n} (symbol string, price double, volume long);\n"
_QUERY: Final = """
@info(name='query {n}')
from Stream{input}[price > {n} and not (symbol == 'none')]#window.time({seconds} sec) -- recent
select symbol, avg(price * volume) as average, count() as trades
group by symbol
having trades > 3
insert into Out{n};
"""
_LINES_OF_QUERY: Final = _QUERY.count("\n")
_STREAMS: Final = 10


@dataclass(frozen=True, slots=True)
class Figure:
    """The time for one app."""

    name: str
    lines: int
    time_s: float

    @property
    def lines_per_s(self) -> float:
        """The rate."""
        return self.lines / self.time_s


def app_of(queries: int) -> str:
    """An app of ``queries`` queries over a few streams."""
    definitions = "".join(_DEFINITION.format(n=n) for n in range(_STREAMS))
    return definitions + "".join(
        _QUERY.format(n=n, input=n % _STREAMS, seconds=n % 60 + 1) for n in range(queries)
    )


def read_and_bind(text: str) -> object:
    """The steps of ``mesh validate`` that check an app."""
    return bind(parse_app(text))


def measure(name: str, run: Callable[[str], object], text: str) -> Figure:
    """The shortest of a few runs: the others depend on the machine's load."""
    times = []
    for _ in range(_RUNS):
        gc.collect()
        start = time.perf_counter()
        run(text)
        times.append(time.perf_counter() - start)
    return Figure(name, text.count("\n"), min(times))


def missed(stages: Mapping[str, Sequence[Figure]], queries: Figure) -> list[str]:
    """The targets that the figures miss, in words."""
    out = []
    for stage, figures in stages.items():
        slowdown = figures[0].lines_per_s / figures[-1].lines_per_s
        if slowdown > SLOWDOWN_MAX:
            lines = figures[-1].lines
            out.append(f"to {stage} a line takes {slowdown:.1f} times as long in {lines} lines")
    if queries.time_s > QUERIES_TIME_MAX_S:
        out.append(f"{QUERIES} queries take {queries.time_s:.2f} s")
    return out


def keep(figures: Sequence[Figure], misses: Sequence[str]) -> Path:
    """Write the figures to ``bench/results/``, named by day and commit."""
    took_s = sum(_RUNS * one.time_s for one in figures)
    rows = [asdict(one) | {"lines_per_s": round(one.lines_per_s)} for one in figures]
    kept = report.document((), misses, took_s) | {"figures": rows}
    return measuring.keep(kept, "language")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="bench.language", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail on a missed target")
    parser.add_argument("--keep", action="store_true", help="write the figures to bench/results/")
    given = parser.parse_args(arguments)
    texts = [app_of((lines - _STREAMS) // _LINES_OF_QUERY) for lines in LINES]
    work = {"read": parse_app, "read and bind": read_and_bind, "lay out": format_app}
    stages = {stage: [measure(stage, run, text) for text in texts] for stage, run in work.items()}
    queries = measure(f"read and bind {QUERIES:,} queries", read_and_bind, app_of(QUERIES))
    figures = [*(one for measured in stages.values() for one in measured), queries]
    for figure in figures:
        print(
            f"{figure.name:28} {figure.lines:>7,} lines  {figure.time_s:7.3f} s  "
            f"{figure.lines_per_s:>9,.0f} lines/s"
        )
    misses = missed(stages, queries)
    for miss in misses:
        print(f"missed: {miss}", file=sys.stderr)
    if given.keep:
        print(f"kept in {keep(figures, misses)}")
    return 1 if misses and given.check else 0


if __name__ == "__main__":
    sys.exit(main())
