"""Generated parts of docs/siddhiql.md: support tables and lists of differences."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mesh.functions.catalogue import (
    AGGREGATORS,
    DOCUMENTED_FUNCTIONS,
    DOCUMENTED_STREAM_FUNCTIONS,
    DOCUMENTED_WINDOWS,
    EXTENSIONS,
    SCALARS,
    STREAM_FUNCTIONS,
    WINDOWS,
    EntryOrigin,
    describe,
)
from tools.docgen.support import Support, all_supports, elements, namespaces, try_call, try_element
from tools.engine_answers import NOT_YET
from tools.validity import cases

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from mesh.functions.catalogue import Signature
    from tools.docgen.support import Element
    from tools.validity import Case

BEGIN: Final = "<!-- made by `make docs`: begin -->"
END: Final = "<!-- made by `make docs`: end -->"
DIFFERENCES_BEGIN: Final = "<!-- differences, made by `make docs`: begin -->"
DIFFERENCES_END: Final = "<!-- differences, made by `make docs`: end -->"
BEHAVIOUR_BEGIN: Final = "<!-- behaviour, made by `make docs`: begin -->"
BEHAVIOUR_END: Final = "<!-- behaviour, made by `make docs`: end -->"
#: Width of a line of calls.
_WIDTH: Final = 98

#: Tables of the engine in the catalogue, by headings of the page.
_OF_THE_ENGINE: Final = (
    ("Functions", SCALARS),
    ("Aggregators", AGGREGATORS),
    ("Windows", WINDOWS),
    ("Stream functions", STREAM_FUNCTIONS),
)
_OF_EXTENSIONS: Final = (
    ("functions", DOCUMENTED_FUNCTIONS),
    ("windows", DOCUMENTED_WINDOWS),
    ("stream functions", DOCUMENTED_STREAM_FUNCTIONS),
)
#: Recorded apps and texts, each with the reasons why some differ from the engine's.
_APPS: Final = ("tests", "cases", "conformance")
_TEXTS: Final = ("tests", "cases", "siddhiql")
#: Most cases that are named per reason.
_NAMED_MAX: Final = 4


def language_document(root: Path) -> str:
    """Text of docs/siddhiql.md: the hand-written parts, and the generated ones updated."""
    text = (root / "docs" / "siddhiql.md").read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, behind = rest.partition(END)
    text = f"{before}{BEGIN}\n\n{support_tables()}\n{END}{behind}"
    before, _, rest = text.partition(DIFFERENCES_BEGIN)
    _, _, behind = rest.partition(DIFFERENCES_END)
    text = f"{before}{DIFFERENCES_BEGIN}\n\n{_difference_list(root)}\n\n{DIFFERENCES_END}{behind}"
    before, _, rest = text.partition(BEHAVIOUR_BEGIN)
    _, _, behind = rest.partition(BEHAVIOUR_END)
    return f"{before}{BEHAVIOUR_BEGIN}\n\n{_behaviour_list(root)}\n\n{BEHAVIOUR_END}{behind}"


def support_tables() -> str:
    """The tables of elements, calls and extensions."""
    parts = [_element_table(name, rows) for name, rows in elements().items()]
    parts += [_call_table(name, signatures) for name, signatures in _OF_THE_ENGINE]
    parts += [_namespace_table(), _extension_table()]
    return "\n".join(parts)


def _element_table(name: str, rows: Iterable[Element]) -> str:
    cells = (
        (
            f"{row.name} ({row.remark})" if row.remark else row.name,
            row.written,
            *_stages(try_element(row)),
        )
        for row in rows
    )
    return _table(name, ("element", "written", "parsed", "typed", "runs"), cells)


def _call_table(name: str, signatures: Mapping[str, Signature]) -> str:
    # Functions that the engine writes for itself have a namespace.
    shown = [one for one in signatures.values() if ":" not in one.name]
    rows = ((f"`{one.name}`", *_stages(try_call(one))) for one in shown)
    table = _table(name, (name.lower().removesuffix("s"), "parsed", "typed", "runs"), rows)
    calls = "\n".join(form for one in shown for form in _forms(one))
    return f"{table}\nCalls:\n\n```text\n{calls}\n```\n"


def _forms(signature: Signature) -> Iterator[str]:
    for overload in signature.overloads:
        form = describe(replace(signature, overloads=(overload,)))
        yield textwrap.fill(form, _WIDTH, subsequent_indent="    ", break_on_hyphens=False)


def _namespace_table() -> str:
    items = []
    for what, signatures in _OF_EXTENSIONS:
        for space, found in namespaces(signatures):
            names = ", ".join(f"`{one.name.rpartition(':')[2]}`" for one in found)
            parsed, typed, runs = all_supports(found)
            title = f"`{space}:` {what}" if space else what
            counts = f"{len(found)}, of which {parsed} parsed, {typed} typed, {runs} run"
            items += [_bullet(f"**{title}**: {counts}."), _bullet(names, "  ")]
    return _list("Of extensions, as their documentation says", items)


def _extension_table() -> str:
    items = []
    for role, kinds in EXTENSIONS.items():
        engine = [f"`{kind.name}`" for kind in kinds.values() if kind.origin is EntryOrigin.ENGINE]
        others = [
            f"`{kind.name}`" for kind in kinds.values() if kind.origin is not EntryOrigin.ENGINE
        ]
        runs = [f"`{kind.name}`" for kind in kinds.values() if kind.runs]
        one, two, three = (", ".join(names) or "none" for names in (engine, others, runs))
        text = f"**{role}**: of the engine: {one}; of extensions: {two}"
        items += [_bullet(text), _bullet(f"runs: {three}", "  ")]
    return _list("Kinds that annotations name", items)


def _difference_list(root: Path) -> str:
    """A list of the reasons why texts differ from the engine's, most frequent first, with names.

    A test checks that mesh and the engine agree on all other recorded cases.
    """
    known = {case.name: case for case in _recorded(root)}
    by_reason: dict[str, list[Case]] = {}
    for name, reason in _listed(root).items():
        by_reason.setdefault(reason, []).append(known[name])
    lines = [f"Of {len(known):,} recorded texts {sum(map(len, by_reason.values()))} differ.", ""]
    for reason, differing in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        sentence = reason[0].upper() + reason[1:]
        lines.append(_bullet(f"{sentence}. The engine {_verdict(differing)}: {_named(differing)}"))
    return "\n".join(lines)


def _listed(root: Path) -> dict[str, str]:
    """Reasons by the names of the differing texts."""
    text = root.joinpath(*_TEXTS, "differences.txt").read_text(encoding="utf-8")
    pairs = [line.rpartition(" | ") for line in text.splitlines() if not line.startswith("#")]
    return {name: reason for name, _, reason in pairs if name}


def _recorded(root: Path) -> list[Case]:
    paths = sorted(root.joinpath(*_TEXTS).glob("*.txt"))
    return [case for path in paths if path.name != "differences.txt" for case in cases(path)]


def _named(differing: list[Case]) -> str:
    names = [case.name.partition("/")[2] for case in differing]
    more = f"; and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return "; ".join(names[:_NAMED_MAX]).replace("|", "\\|") + more


def _verdict(differing: list[Case]) -> str:
    verdicts = dict.fromkeys(
        "accepts" if case.verdict is not None and case.verdict.accepted else "refuses"
        for case in differing
    )
    return " or ".join(verdicts)


def _behaviour_list(root: Path) -> str:
    """A list of the reasons why apps differ from the engine, the most frequent first, with cases.

    A test checks that ``differences.txt`` is complete for the recorded apps.  Apps that are not
    supported yet are not in the list.
    """
    path = root.joinpath(*_APPS, "differences.txt")
    by_reason: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, divider, reason = line.partition(" | ")
        if divider and not line.startswith("#") and reason != NOT_YET:
            by_reason.setdefault(reason, []).append(name)
    recorded = sum(len(one.read_bytes().splitlines()) for one in path.parent.glob("*.jsonl"))
    differing = sum(map(len, by_reason.values()))
    lines = [f"Of {recorded:,} recorded apps {differing} differ.", ""]
    for reason, names in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0])):
        more = f"; and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
        shown = "; ".join(f"`{name}`" for name in names[:_NAMED_MAX])
        lines.append(_bullet(f"{reason[0].upper()}{reason[1:]}. Apps: {shown}{more}"))
    return "\n".join(lines)


def _list(name: str, items: Iterable[str]) -> str:
    return f"### {name}\n\n" + "\n".join(items) + "\n"


def _bullet(text: str, indent: str = "") -> str:
    """A list item, wrapped to the width of a page."""
    return textwrap.fill(
        text, 100, initial_indent=f"{indent}- ", subsequent_indent=f"{indent}  ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _stages(support: Support) -> tuple[str, ...]:
    return tuple(
        "yes" if stage else "no" for stage in (support.parsed, support.typed, support.runs)
    )


def _table(name: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [_row(columns), _row("---" for _ in columns), *(_row(row) for row in rows)]
    return f"### {name}\n\n" + "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
