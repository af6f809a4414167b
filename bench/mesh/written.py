"""The table of measured numbers in docs/operations.md, from the results that are kept."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from bench.connector.report import RESULTS, number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

DOCUMENT: Final = RESULTS.parents[1] / "docs" / "operations.md"
#: Text before and after the table.
BEGIN: Final = "<!-- numbers, made by `make bench-mesh`: begin -->\n"
END: Final = "<!-- numbers, made by `make bench-mesh`: end -->\n"
#: Title of a column, and how the names of results begin that it is from.
_COLUMNS: Final = {"one NATS server": "mesh-2", "three of them": "mesh-3-servers-"}


def rewrite(document: Path = DOCUMENT, results: Path = RESULTS) -> None:
    """Write the newest results into ``document``."""
    text = document.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, behind = rest.partition(END)
    document.write_text(before + BEGIN + "".join(_lines(results)) + END + behind)


def _lines(results: Path) -> Iterator[str]:
    columns: dict[str, Mapping[str, Any]] = {}
    sources = []
    for title, start in _COLUMNS.items():
        newest = max(results.glob(f"{start}*.json"), key=_time, default=None)
        if newest is not None:
            columns[title] = {f["name"]: f for f in _named(json.loads(newest.read_text()))}
            sources.append(f"[{newest.name}](../bench/results/{newest.name})")
    if not columns:
        return
    yield f"| | {' | '.join(columns)} | at most |\n| --- |{' --- |' * (len(columns) + 1)}\n"
    for name in dict.fromkeys(name for found in columns.values() for name in found):
        figures = [found.get(name) for found in columns.values()]
        known = next(f for f in figures if f is not None)
        cells = " | ".join("" if f is None else _shown(f) for f in figures)
        yield f"| {name} | {cells} | {_target(known)} |\n"
    yield "\nFrom\n\n"
    yield from (f"- {source}\n" for source in sources)


def _time(path: Path) -> str:
    return str(json.loads(path.read_text())["time"])


def _named(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The figures, each under a complete name: some names only continue the previous one."""
    before = ""
    for figure in result["figures"]:
        name = str(figure["name"])
        if name.startswith("the same, "):
            name = re.sub(r", median$", "", before) + ", " + name.removeprefix("the same, ")
        else:
            before = name
        yield {**figure, "name": name}


def _shown(figure: Mapping[str, Any]) -> str:
    missed = " (missed)" if figure["is_met"] is False else ""
    return f"{number(figure['value'])} {figure['unit']}".strip() + missed


def _target(figure: Mapping[str, Any]) -> str:
    if figure["target"] is None:
        return ""
    bound = "at least " if figure["at_least"] else ""
    return f"{bound}{number(figure['target'])} {figure['unit']}".strip()
