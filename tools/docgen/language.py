"""docs/siddhiql.md: the support table and the list of differences; the prose is written by hand."""

from __future__ import annotations

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
    Origin,
    describe,
)
from tools.docgen.behaviour import behaviour_table
from tools.docgen.differences import difference_table
from tools.docgen.support import Support, all_supports, elements, namespaces, try_call, try_element

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from mesh.functions.catalogue import Signature
    from tools.docgen.support import Element

BEGIN: Final = "<!-- made by `make docs`: begin -->"
END: Final = "<!-- made by `make docs`: end -->"
DIFFERENCES_BEGIN: Final = "<!-- differences, made by `make docs`: begin -->"
DIFFERENCES_END: Final = "<!-- differences, made by `make docs`: end -->"
BEHAVIOUR_BEGIN: Final = "<!-- behaviour, made by `make docs`: begin -->"
BEHAVIOUR_END: Final = "<!-- behaviour, made by `make docs`: end -->"

#: Of the engine, the catalogue's tables under the headings of the document.
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


def language_document(root: Path) -> str:
    """The text of docs/siddhiql.md: the present text with a new table."""
    text = (root / "docs" / "siddhiql.md").read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, behind = rest.partition(END)
    text = f"{before}{BEGIN}\n\n{support_tables()}\n{END}{behind}"
    before, _, rest = text.partition(DIFFERENCES_BEGIN)
    _, _, behind = rest.partition(DIFFERENCES_END)
    text = f"{before}{DIFFERENCES_BEGIN}\n\n{difference_table(root)}\n\n{DIFFERENCES_END}{behind}"
    before, _, rest = text.partition(BEHAVIOUR_BEGIN)
    _, _, behind = rest.partition(BEHAVIOUR_END)
    return f"{before}{BEHAVIOUR_BEGIN}\n\n{behaviour_table(root)}\n\n{BEHAVIOUR_END}{behind}"


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
    cells = (
        (f"`{signature.name}`", _forms(signature), *_stages(try_call(signature)))
        for signature in signatures.values()
        # Parts that the engine generates have a namespace.
        if ":" not in signature.name
    )
    return _table(
        name, (name.lower().removesuffix("s"), "called", "parsed", "typed", "runs"), cells
    )


def _forms(signature: Signature) -> str:
    forms = (replace(signature, overloads=(overload,)) for overload in signature.overloads)
    return ", ".join(f"`{describe(form)}`" for form in forms)


def _namespace_table() -> str:
    cells = []
    for what, signatures in _OF_EXTENSIONS:
        for space, found in namespaces(signatures):
            names = ", ".join(f"`{one.name.rpartition(':')[2]}`" for one in found)
            counts = (f"{count} of {len(found)}" for count in all_supports(found))
            cells.append((f"`{space}:` {what}" if space else what, names, *counts))
    return _table(
        "Of extensions, as their documentation says",
        ("namespace", "names", "parsed", "typed", "runs"),
        cells,
    )


def _extension_table() -> str:
    cells = []
    for role, kinds in EXTENSIONS.items():
        engine = [f"`{kind.name}`" for kind in kinds.values() if kind.origin is Origin.ENGINE]
        others = [f"`{kind.name}`" for kind in kinds.values() if kind.origin is not Origin.ENGINE]
        runs = [f"`{kind.name}`" for kind in kinds.values() if kind.runs]
        cells.append((str(role), *(", ".join(names) or "none" for names in (engine, others, runs))))
    return _table("Kinds that annotations name", ("", "the engine's", "extensions'", "runs"), cells)


def _stages(support: Support) -> tuple[str, ...]:
    return tuple(
        "yes" if stage else "no" for stage in (support.parsed, support.typed, support.runs)
    )


def _table(name: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [_row(columns), _row("---" for _ in columns), *(_row(row) for row in rows)]
    return f"### {name}\n\n" + "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
