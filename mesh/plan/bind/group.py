"""Binding of the part of an app that a group runs."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from mesh.language.parser import parse
from mesh.plan.bind import bind

if TYPE_CHECKING:
    from mesh.model.app import GroupSpec
    from mesh.plan.bound import BoundApp


def bind_group(spec: GroupSpec) -> BoundApp:
    """The part of an app that a worker runs for ``spec``: its text, parsed and bound.

    A partitioner has no queries; it copies its input to its output.
    """
    return _bound(spec.text)


@lru_cache(maxsize=64)
def _bound(text: str) -> BoundApp:
    """A bound text; it stays when its group is scaled, and is the same for each of its parts."""
    return bind(parse(text))
