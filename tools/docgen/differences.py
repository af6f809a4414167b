"""The list in docs/siddhiql.md of the texts on which we and the reference engine differ, and why.

It is made from the recorded cases: ``tests/cases/siddhiql/differences.txt`` names them, with the
reasons, and a test holds that the two agree on every other one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tools.validity import cases

if TYPE_CHECKING:
    from pathlib import Path

    from tools.validity import Case

_FOLDER: Final = ("tests", "cases", "siddhiql")
#: Maximum number of named cases of one reason.
_NAMED_MAX: Final = 6


def listed(root: Path) -> dict[str, str]:
    """The reasons of the cases that differ, by the names of the cases."""
    text = root.joinpath(*_FOLDER, "differences.txt").read_text(encoding="utf-8")
    pairs = [line.rpartition(" | ") for line in text.splitlines() if not line.startswith("#")]
    return {name: reason for name, _, reason in pairs if name}


def difference_table(root: Path) -> str:
    """The differences by reason, the most frequent reason first."""
    known = {case.name: case for case in _recorded(root)}
    by_reason: dict[str, list[Case]] = {}
    for name, reason in listed(root).items():
        by_reason.setdefault(reason, []).append(known[name])
    lines = [
        f"Of {len(known):,} recorded texts {sum(map(len, by_reason.values()))} differ.",
        "",
        "| texts | the engine | why it is otherwise here |",
        "| --- | --- | --- |",
    ]
    for reason, differing in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        lines.append(f"| {_named(differing)} | {_verdict(differing)} | {reason} |")
    return "\n".join(lines)


def _recorded(root: Path) -> list[Case]:
    paths = sorted(root.joinpath(*_FOLDER).glob("*.txt"))
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
