"""Subjects and the patterns that select them, many at a time."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import FEW, kernels

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


def matching(subjects: Array | list[str], patterns: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Mask of the ``subjects`` (length n, string, no nulls) that one of ``patterns`` matches."""
    exact, wild = _matchers(tuple(patterns))
    if len(subjects) <= FEW and not wild:
        texts = subjects if isinstance(subjects, list) else subjects.to_pylist()
        return np.array([subject in patterns for subject in texts], bool)
    if isinstance(subjects, list):
        subjects = pa.array(subjects, pa.string())
    mask = kernels.is_in(subjects, value_set=exact)
    if wild:
        mask = kernels.or_(mask, kernels.match_substring_regex(subjects, wild))
    return np.asarray(mask.to_numpy(zero_copy_only=False), bool)


@lru_cache(maxsize=1024)
def _matchers(patterns: tuple[str, ...]) -> tuple[Array, str]:
    """The subjects among the patterns, and a regular expression for the others; "" for none."""
    exact = [pattern for pattern in patterns if not has_wildcard(pattern)]
    wild = "|".join(_regex(pattern) for pattern in patterns if has_wildcard(pattern))
    return pa.array(exact, pa.string()), f"^(?:{wild})$" if wild else ""


def _regex(pattern: str) -> str:
    named = {"*": "[^.]+", ">": ".+"}
    return r"\.".join(named.get(token, re.escape(token)) for token in pattern.split("."))
