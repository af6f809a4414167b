"""SQLAlchemy as ``sa``, imported on first use: it is an extra, and few processes need it."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["sa"]

if TYPE_CHECKING:
    import sqlalchemy as sa
else:

    class _Lazy(ModuleType):
        def __getattr__(self, name: str) -> Any:
            value = getattr(importlib.import_module(self.__name__), name)
            setattr(self, name, value)
            return value

    sa = _Lazy("sqlalchemy")
