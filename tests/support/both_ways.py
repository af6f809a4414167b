"""Calls for few messages and for many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


def both(monkeypatch: pytest.MonkeyPatch, module: Any, made: Callable[[], Any]) -> tuple[Any, Any]:
    few = made()
    monkeypatch.setattr(module, "FEW", -1)
    return few, made()
