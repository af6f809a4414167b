"""The tables of ``docs/cli.md`` with the routes of the REST API, from the table of operations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mesh.model.foreign_operations import ScimOperations
from mesh.model.operation import ANY_USER, ParameterPlace, Public, operations_of
from mesh.model.operations import SECTIONS, section_title

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.model.operation import Operation


def cli_document(root: Path) -> str:
    """``docs/cli.md`` with the tables between its marks for sections."""
    text = (root / "docs" / "cli.md").read_text(encoding="utf-8")
    for section in SECTIONS:
        if section is ScimOperations:
            # docs/security.md says what is supported of that standard.
            continue
        name = section_title(section).lower()
        begin, end = f"<!-- operations: {name} -->\n", "<!-- end -->"
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        made = begin + "\n" + _table(section) + "\n" + end
        text, count = pattern.subn(made.replace("\\", r"\\"), text)
        assert count == 1, f"docs/cli.md has no mark for {name}"
    return text


def _table(section: type) -> str:
    lines = ["| request | permission | effect |", "| --- | --- | --- |"]
    lines += [
        f"| {_request(one)} | {_permission(one)} | {_summary(one)} |"
        for one in operations_of(section)
    ]
    return "\n".join(lines) + "\n"


def _request(one: Operation[..., Any]) -> str:
    given = [p.name for p in one.parameters if p.place is ParameterPlace.QUERY]
    query = f"<br>`?{'`, `'.join(given)}`" if given else ""
    first, *others = one.paths
    parent = first.rpartition("/")[0]
    more = "".join(f", `{path.removeprefix(f'{parent}/')}`" for path in others)
    return f"`{one.method} {first}`{more}{query}"


def _permission(one: Operation[..., Any]) -> str:
    if isinstance(one.permission, Public):
        return "none"
    return "any user" if one.permission is ANY_USER else f"`{one.permission}`"


def _summary(one: Operation[..., Any]) -> str:
    return one.summary.rstrip(".").replace("``", "`").replace("|", "\\|")
