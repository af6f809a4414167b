"""``python -m bench.language``: how fast SiddhiQL is read and laid out.

Prints lines a second for apps of 200, 2,000 and 20,000 lines, and the time for 1,000 queries.
With ``--check`` a missed target fails: time in proportion to length, and 1,000 queries in less than
the two seconds that reading and binding may take together.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.language.layout import format_app
from mesh.language.parser import parse_app

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LINES: Final = (200, 2_000, 20_000)
QUERIES: Final = 1_000
QUERIES_TIME_MAX_S: Final = 2.0
#: How much slower a line may get when there are a hundred times as many.
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
    """How long one app took."""

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


def measure(name: str, run: Callable[[str], object], text: str) -> Figure:
    """The shortest of a few runs: the others tell of the machine."""
    times = []
    for _ in range(_RUNS):
        gc.collect()
        start = time.perf_counter()
        run(text)
        times.append(time.perf_counter() - start)
    return Figure(name, text.count("\n"), min(times))


def missed(parsing: Sequence[Figure], queries: Figure) -> list[str]:
    """The targets that the figures miss, in words."""
    out = []
    slowdown = parsing[0].lines_per_s / parsing[-1].lines_per_s
    if slowdown > SLOWDOWN_MAX:
        out.append(f"a line takes {slowdown:.1f} times as long in {parsing[-1].lines} lines")
    if queries.time_s > QUERIES_TIME_MAX_S:
        out.append(f"{QUERIES} queries take {queries.time_s:.2f} s")
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="bench.language", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail on a missed target")
    check = parser.parse_args(arguments).check
    texts = [app_of((lines - _STREAMS) // _LINES_OF_QUERY) for lines in LINES]
    parsing = [measure("parse", parse_app, text) for text in texts]
    formatting = [measure("format", format_app, text) for text in texts]
    queries = measure(f"parse {QUERIES} queries", parse_app, app_of(QUERIES))
    for figure in (*parsing, *formatting, queries):
        print(
            f"{figure.name:20} {figure.lines:>7,} lines  {figure.time_s:7.3f} s  "
            f"{figure.lines_per_s:>9,.0f} lines/s"
        )
    misses = missed(parsing, queries)
    for miss in misses:
        print(f"missed: {miss}", file=sys.stderr)
    return 1 if misses and check else 0


if __name__ == "__main__":
    sys.exit(main())
