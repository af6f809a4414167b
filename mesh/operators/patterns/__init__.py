"""Patterns and sequences: partial matches of events that follow each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.operators.patterns.exact import ExactPattern

if TYPE_CHECKING:
    from mesh.plan.bound import BoundPattern, BoundQuery

Pattern = ExactPattern


def make_pattern(query: BoundQuery, pattern: BoundPattern, is_partitioned: bool = False) -> Pattern:
    """The operator of a pattern, with nothing in it yet."""
    return ExactPattern(query, pattern, is_partitioned)
