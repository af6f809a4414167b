"""Subjects and the patterns that select them, many at a time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from pyspark_nats.arrow import Array


def has_wildcard(pattern: str) -> bool:
    """Whether ``pattern`` may match more than one subject."""
    return not {"*", ">"}.isdisjoint(pattern.split("."))


def overlap(one: str, other: str) -> bool:
    """Whether there can be a subject that both patterns match."""
    for a, b in zip(one.split("."), other.split("."), strict=False):
        if ">" in (a, b):
            return True
        if a != b and "*" not in (a, b):
            return False
    return len(one.split(".")) == len(other.split("."))


def matching(subjects: Array, patterns: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Mask of the ``subjects`` (length n, string, no nulls) that one of ``patterns`` matches."""
    exact = [pattern for pattern in patterns if not has_wildcard(pattern)]
    found = kernels.is_in(subjects, value_set=pa.array(exact, pa.string()))
    wild = "|".join(_regex(pattern) for pattern in patterns if has_wildcard(pattern))
    if wild:
        found = kernels.or_(found, kernels.match_substring_regex(subjects, f"^(?:{wild})$"))
    return np.asarray(found.to_numpy(zero_copy_only=False), bool)


def _regex(pattern: str) -> str:
    named = {"*": "[^.]+", ">": ".+"}
    return r"\.".join(named.get(token, re.escape(token)) for token in pattern.split("."))
