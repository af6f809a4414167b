"""Patterns of subjects, as NATS matches them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_nats.source import subjects
from tests.support.both_ways import both


def test_subjects_of_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    given, wanted = pa.array(["a.b", "a.c", "a"]), ("a.c", "a")
    few, many = both(monkeypatch, subjects, lambda: subjects.matching(given, wanted).tolist())
    assert few == many == [False, True, True]


tokens = st.sampled_from(["a", "b", "c-d", "é", "x+y", "*", ">"])
patterns = st.lists(tokens, min_size=1, max_size=4).filter(lambda t: ">" not in t[:-1])
names = st.lists(st.sampled_from(["a", "b", "c-d", "é", "x+y"]), min_size=1, max_size=4)


def matches(pattern: list[str], name: list[str]) -> bool:
    if pattern[-1] == ">":
        rest = len(name) >= len(pattern)
        return rest and all(p in ("*", t) for p, t in zip(pattern[:-1], name, strict=False))
    return len(pattern) == len(name) and all(
        p in ("*", t) for p, t in zip(pattern, name, strict=True)
    )


@given(st.lists(patterns, min_size=1, max_size=3), st.lists(names, min_size=1, max_size=8))
def test_subjects_match_as_nats_matches_them(wanted: list[Any], given_: list[Any]) -> None:
    column = pa.array([".".join(name) for name in given_])
    found = subjects.matching(column, [".".join(pattern) for pattern in wanted])
    assert found.tolist() == [any(matches(p, name) for p in wanted) for name in given_]


@given(patterns, patterns, names)
def test_what_matches_both_overlaps(one: list[str], other: list[str], name: list[str]) -> None:
    if matches(one, name) and matches(other, name):
        assert subjects.overlap(".".join(one), ".".join(other))
