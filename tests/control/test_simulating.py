"""Events of feeds: the same whenever they are made, and never past their bounds."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.control.simulating import next_event, rows_of, text_of, value
from mesh.errors import MeshError
from mesh.model.simulation import FeedSource, feed_of
from mesh.model.types import AttributeType

INT, STRING, DOUBLE, BOOL = (AttributeType(t) for t in ("int", "string", "double", "bool"))


def of_random(*rules: dict[str, Any], **more: str) -> dict[str, Any]:
    source = {"siddhiAppName": "A", "streamName": "S", "timestampInterval": "10", **more}
    kind = {"simulationType": "RANDOM_DATA_SIMULATION", "attributeConfiguration": list(rules)}
    return source | kind


def of_file(**more: Any) -> dict[str, Any]:
    source = {"siddhiAppName": "A", "streamName": "F", "simulationType": "CSV_SIMULATION"}
    return {**source, "fileName": "a.csv", "timestampInterval": "15", **more}


def configured(*sources: dict[str, Any], **properties: Any) -> dict[str, Any]:
    return {"properties": {"simulationName": "f", **properties}, "sources": list(sources)}


DIGIT = {"type": "PRIMITIVE_BASED", "primitiveType": "INT", "min": "0", "max": "9"}


def played(
    values: dict[str, Any], rows: dict[int, Any] | None = None, sent: list[int] | None = None
) -> list[tuple[int, int, int, list[Any]]]:
    """Source, number, time and values of all events, after ``sent``."""
    feed = feed_of(values)
    sent = list(sent or [0] * len(feed.sources))
    found: list[tuple[int, int, int, list[Any]]] = []
    while (one := next_event(feed, "run", 1000, rows or {}, sent)) and len(found) < 50:
        found.append((one.source, one.number, one.time_ms, one.values))
        sent[one.source] += 1
    return found


def test_sources_take_turns_by_time_until_the_count_or_the_end() -> None:
    source = FeedSource("A", "F", 15, file="a.csv")
    rows = {1: rows_of(source, "7\n8\n9\n", [INT])}
    both = of_random(DIGIT), of_file()
    counted = played(configured(*both, noOfEvents="6"), rows)
    assert [(at, n, ms) for at, n, ms, _ in counted] == [
        (0, 0, 1000), (1, 0, 1000), (0, 1, 1010), (1, 1, 1015), (0, 2, 1020), (0, 3, 1030),
    ]  # fmt: skip
    assert [values for at, _, _, values in counted if at == 1] == [[7], [8]]
    ended = played(configured(*both, startTimestamp="0", endTimestamp="20"), rows)
    assert [(at, ms) for at, _, ms, _ in ended] == [(0, 0), (1, 0), (0, 10), (1, 15), (0, 20)]
    # A file ends with its last line, random events do not end.
    assert len(played(configured(of_file()), {0: rows[1]})) == 3
    assert len(played(configured(of_random(DIGIT)))) == 50


def test_another_process_continues_with_the_same_events() -> None:
    values = configured(of_random(DIGIT), of_random(DIGIT, timestampInterval="7"), noOfEvents="40")
    whole = played(values)
    for at in range(40):
        sent = [sum(one[0] == source for one in whole[:at]) for source in (0, 1)]
        assert played(values, sent=sent) == whole[at:]
    assert len({tuple(one[3]) for one in whole}) > 3


def test_lines_of_files_have_times_columns_and_types() -> None:
    source = FeedSource("A", "F", 1, (), "a.csv", ";", 0, (2, 1, 3), is_ordered=False)
    text = 'b;2;"x;y";true\n20;;z;no\n'.replace("b", "30", 1)
    rows = rows_of(source, text, [STRING, DOUBLE, BOOL])
    assert [(row.time_ms, row.values) for row in rows] == [
        (20, ["z", None, False]), (30, ["x;y", 2.0, True]),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["1,a\n", "1\n", "x,2\n", "-1,2\n", '"1,2', "1," + "9" * 5000])
def test_a_line_that_does_not_fit_is_named(text: str) -> None:
    source = FeedSource("A", "F", 1, file="a.csv", time_column=0, columns=(1,))
    with pytest.raises(MeshError, match=r"line 1 of a\.csv does not fit stream F"):
        rows_of(source, text, [INT])


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers())
def test_random_values_are_within_their_bounds(one: int, other: int, seed: int) -> None:
    low, high = min(one, other), max(one, other)
    for kind in ("INT", "LONG", "DOUBLE", "FLOAT"):
        rule = {"type": "PRIMITIVE_BASED", "primitiveType": kind, "min": one, "max": str(other),
                "precision": 2}  # fmt: skip
        (source,) = feed_of(configured(of_random(rule))).sources
        found = value(source.attributes[0], random.Random(seed))
        assert low <= found <= high
        assert found == round(found, 2)
        assert isinstance(found, int) is (kind in ("INT", "LONG"))


def test_texts_lists_and_truth_values() -> None:
    rules: list[dict[str, Any]] = [
        {"type": "PRIMITIVE_BASED", "primitiveType": "STRING", "length": "7"},
        {"type": "CUSTOM_DATA_BASED", "list": ["a", 2]},
        {"type": "PRIMITIVE_BASED", "primitiveType": "BOOL"},
    ]
    (source,) = feed_of(configured(of_random(*rules))).sources
    drawn = random.Random(1)
    text, chosen, flag = zip(*(
        [value(rule, drawn) for rule in source.attributes] for _ in range(20)
    ), strict=True)  # fmt: skip
    assert {len(one) for one in text} == {7}
    assert set(chosen) == {"a", 2}
    assert set(flag) == {True, False}


@pytest.mark.parametrize(
    "pattern",
    [
        r"[A-Z]{3}-\d{2,4}",
        r"(red|green)? .+x*",
        r"[^a-y\s]{5}",
        r"\w+@\w+\.(com|org)",
        "a{0}b|c",
        "[^a]",
    ],
)
def test_texts_of_a_pattern_match_it(pattern: str) -> None:
    found = {text_of(pattern, random.Random(seed)) for seed in range(50)}
    assert all(re.fullmatch(pattern, text) for text in found)
    assert len(found) > 1
