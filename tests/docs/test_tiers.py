"""tests/TIERS.md: an extended or thorough test has a row and a twin, a slow one its reason."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from tests.support.paths import ROOT

TABLE: Final = ROOT / "tests" / "TIERS.md"
#: Marks of tests that have a row each.
ROWS: Final = ("extended", "thorough")
#: Marks of tests that can't be a twin.
LEFT_OUT: Final = (*ROWS, "long")


@dataclass(frozen=True)
class Marked:
    """The tier of a test, by its markers."""

    has_row: bool
    #: None of its cases can be a twin.
    is_left_out: bool
    is_slow: bool


def is_mark(node: ast.AST, *names: str) -> bool:
    """Whether ``node`` is a ``pytest.mark`` of one of these names."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr in names
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "mark"
    )


def uses(node: ast.AST, *names: str) -> bool:
    """Whether such a mark is anywhere in ``node``."""
    return any(is_mark(one, *names) for one in ast.walk(node))


@cache
def marked_tests() -> dict[str, Marked]:
    """All tests of the tree by their path and name."""
    found = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        # The values that parametrized tests read from a name of their module.
        assigned = {
            node.targets[0].id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        of_module = assigned.get("pytestmark", ast.Constant(None))
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if not node.name.startswith("test_"):
                continue
            decorators = [*node.decorator_list]
            for decorator in node.decorator_list:
                names = [one.id for one in ast.walk(decorator) if isinstance(one, ast.Name)]
                decorators += [assigned[name] for name in names if name in assigned]
            is_whole = uses(of_module, *LEFT_OUT) or any(
                is_mark(one, *LEFT_OUT) for one in decorators
            )
            has_row = any(uses(one, *ROWS) for one in [of_module, *decorators])
            name = f"{path.relative_to(ROOT).as_posix()}::{node.name}"
            is_slow = any(uses(one, "slow") for one in [of_module, *decorators])
            found[name] = Marked(has_row, is_whole, is_slow)
    return found


def rows() -> list[tuple[str, str, str]]:
    """The table: test, what it adds, twin."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    cells = [line.strip("|").split("|") for line in lines if line.startswith("| `tests")]
    return [(test.strip(" `"), adds.strip(), twin.strip(" `")) for test, adds, twin in cells]


def test_every_test_left_out_has_one_row() -> None:
    left_out = [name for name, marked in marked_tests().items() if marked.has_row]
    assert sorted(test for test, _, _ in rows()) == sorted(left_out)


def test_every_twin_runs_at_each_change() -> None:
    tests = marked_tests()
    twins = [twin for _, _, twin in rows()]
    assert [twin for twin in twins if twin not in tests] == []
    assert [twin for twin in twins if tests[twin].is_left_out] == []


def test_every_row_says_what_its_test_adds() -> None:
    assert [test for test, adds, _ in rows() if not adds] == []


def test_what_is_slow_has_its_reason() -> None:
    section = TABLE.read_text(encoding="utf-8").split("## Slow tests")[1].split("\n## ")[0]
    named = tuple(re.findall(r"`(tests/[^`]+)`", section))
    slow = [name for name, marked in marked_tests().items() if marked.is_slow]
    assert [name for name in slow if not name.startswith(named)] == []
    assert [one for one in named if not any(name.startswith(one) for name in slow)] == []
