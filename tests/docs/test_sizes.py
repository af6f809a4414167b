"""Sizes: a file has at most 800 lines and a function at most 60, or the file's docstring says why.

A reason is a sentence of the module's docstring that says "longer than".  Blank lines, comments
and docstrings of functions don't count.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.statements import statements

ROOT = Path(__file__).parents[2]
FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 60
FILES = [
    path
    for folder in ("mesh", "connectors", "tools", "bench", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> int:
    """The lines of a function without its docstring, comments and blank lines."""
    first = function.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    skipped = range(first.lineno, (first.end_lineno or 0) + 1) if is_docstring else range(0)
    return sum(
        1
        for number in range(function.lineno, (function.end_lineno or 0) + 1)
        if number not in skipped and lines[number - 1].strip().strip("#") != ""
        if not lines[number - 1].lstrip().startswith("#")
    )


@pytest.mark.parametrize("folder", ["mesh", "connectors", "tools", "bench", "tests"])
def test_a_long_file_or_function_has_a_reason(folder: str) -> None:
    long = []
    for path in FILES:
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(f"{folder}/"):
            continue
        text = path.read_text("utf-8")
        lines, tree = text.splitlines(), ast.parse(text)
        if "longer than" in (ast.get_docstring(tree) or ""):
            continue
        if len(lines) > FILE_LINES_MAX:
            long.append(f"{name}: {len(lines)} lines")
        long += [
            f"{name}:{node.lineno} {node.name}: {count} lines"
            for node in statements(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (count := code_lines(node, lines)) > FUNCTION_LINES_MAX
        ]
    assert not long, "\n".join(long)
