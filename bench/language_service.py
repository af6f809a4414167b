"""``python -m bench.language_service``: how soon an editor gets its answers.

Asks for every feature at places all over a text of 1,000 lines.  The text is analysed once a
version; completion is asked in a version that has just been typed, with the names of the one
before, as ``mesh lsp`` does.  Each version that is analysed or formatted has a letter more than the
one before, in a statement of its own, and is valid; or a line more, so that all statements below
move.  With ``--check`` a p95 above 50 ms fails, but for the first analysis.  With ``--keep`` the
figures go to ``bench/results/``.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from bench import measuring
from bench.connector import report
from bench.language import app_of
from mesh.cli.language_server import collect_rarely
from mesh.language_service.completion import complete
from mesh.language_service.document import Document
from mesh.language_service.hover import hover
from mesh.language_service.navigation import definition, fixes, references
from mesh.language_service.outline import inferred_types, lenses, outline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

LINES: Final = 1_000
P95_MAX_MS: Final = 50.0
#: Number of places at which each feature is asked.
_PLACES: Final = 200
#: Number of versions that are analysed, and that are formatted.
_VERSIONS: Final = 40
_FIRST: Final = "analysis, first of a text"
_QUERIES: Final = (LINES - 10) // 7


def figures_of() -> dict[str, float]:
    """p95 of each feature in milliseconds, and the time of the first analysis."""
    text = app_of(_QUERIES)
    started = time.perf_counter()
    document = Document(text, "Bench")
    assert not document.problems
    document.analyse()
    analysis_ms = (time.perf_counter() - started) * 1000
    places = list(_places(text))
    features: dict[str, Callable[[int, int], object]] = {
        "completion": lambda line, column: complete(document, line, column),
        "completion while typing": lambda line, column: _typed(document, line, column),
        "hover": lambda line, column: hover(document, line, column),
        "definition": lambda line, column: definition(document, line, column),
        "references": lambda line, column: references(document, line, column),
        "fixes": lambda line, _: fixes(document, line, line),
        "types of a screen": lambda line, _: inferred_types(document, line, line + 60),
    }
    found = {name: _p95(ask, places) for name, ask in features.items()}
    found["symbols"] = _p95(lambda *_: outline(document), places[:20])
    found["lenses"] = _p95(lambda *_: lenses(document), places[:20])
    letters, new_lines = list(_versions(text, "s")), list(_versions(text, "\n"))
    found["formatting, after a letter"] = _p95(_format, zip(letters))
    found["formatting, after a new line"] = _p95(_format, zip(new_lines))
    found["analysis, after a letter"] = _p95(_analyse, zip(letters))
    found["analysis, after a new line"] = _p95(_analyse, zip(new_lines))
    found[_FIRST] = analysis_ms
    return found


def _versions(text: str, typed: str) -> Iterator[str]:
    """The text with more and more typed at the ends of names, one in each of some queries."""
    for number in range(0, _QUERIES, max(1, _QUERIES // _VERSIONS)):
        at = text.index("average", text.index(f"query {number}'")) + len("average")
        text = f"{text[:at]}{typed}{text[at:]}"
        yield text


def _analyse(text: str) -> None:
    Document(text, "Bench").analyse()


def _format(text: str) -> None:
    assert Document(text, "Bench").formatted is not None


def _places(text: str) -> Iterator[tuple[int, int]]:
    lines = text.split("\n")
    for number in range(1, len(lines), max(1, len(lines) // _PLACES)):
        line = lines[number - 1]
        yield number, max(1, len(line) * 2 // 3)


def _typed(before: Document, line: int, column: int) -> object:
    """Type a letter, and ask."""
    at = before.places.offset(line, column)
    after = Document(f"{before.text[:at]}s{before.text[at:]}", before.name)
    return complete(after, line, column + 1, previous=before)


def _p95(ask: Callable[..., object], questions: Iterable[tuple[Any, ...]]) -> float:
    times = []
    for arguments in questions:
        started = time.perf_counter()
        ask(*arguments)
        times.append((time.perf_counter() - started) * 1000)
    return sorted(times)[int(len(times) * 0.95)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="bench.language_service", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail on a missed target")
    parser.add_argument("--keep", action="store_true", help="write the figures to bench/results/")
    given = parser.parse_args(arguments)
    started = time.perf_counter()
    collect_rarely()
    found = figures_of()
    for name, p95_ms in found.items():
        print(f"{name:34} {p95_ms:8.2f} ms")
    answers = [name for name in found if name != _FIRST]
    misses = [f"{name}: {found[name]:.1f} ms" for name in answers if found[name] > P95_MAX_MS]
    for miss in misses:
        print(f"missed: {miss}", file=sys.stderr)
    if given.keep:
        rows = [{"name": name, "p95_ms": round(ms, 2)} for name, ms in found.items()]
        kept = report.document((), misses, time.perf_counter() - started) | {"figures": rows}
        print(measuring.keep(kept, "language_service"))
    return 1 if given.check and misses else 0


if __name__ == "__main__":
    sys.exit(main())
