"""The statements of a module, without a walk through their expressions, which are most of it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Fields of nodes that hold statements, or nodes with statements.
_BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Every statement of ``tree``, however deep."""
    found: list[ast.AST] = [tree]
    for node in found:
        if isinstance(node, ast.stmt):
            yield node
        for block in _BLOCKS:
            found += getattr(node, block, ())
