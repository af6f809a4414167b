"""Events read by the rules, and by faster ways: both give the same."""

from __future__ import annotations

import json

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_nats.decode import rules
from tests.support.decoded_types import (
    DAYS,
    ENCODED,
    FIELDS,
    NUMBERS,
    TIMES,
    by_the_rules,
    decoded,
    seen,
)

pytestmark = pytest.mark.usefixtures("in_blocks")

TEXTS = st.one_of(TIMES, NUMBERS, ENCODED, st.text(max_size=4)).map(json.dumps)
SCALARS = st.one_of(TEXTS, NUMBERS, st.sampled_from(["null", "true", "false"]))
OBJECTS = st.dictionaries(
    st.sampled_from(["zip", "city", "b", "d", "in", "key", "value", "q"]), SCALARS, max_size=3
).map(lambda items: "{" + ",".join(f"{json.dumps(k)}:{v}" for k, v in items.items()) + "}")
VALUES = st.one_of(
    SCALARS, OBJECTS, st.lists(SCALARS | OBJECTS, max_size=3).map(lambda v: f"[{','.join(v)}]")
)
#: Values that are most often right, so that whole blocks are.
RIGHT: dict[str, st.SearchStrategy[str]] = {
    "n": st.integers(-9, 9).map(str), "x": NUMBERS, "f": NUMBERS,
    "s": st.text(max_size=3).map(json.dumps),
    "at": TIMES.map(json.dumps), "ntz": TIMES.map(json.dumps), "day": DAYS.map(json.dumps),
    "raw": ENCODED.map(json.dumps), "d": NUMBERS | NUMBERS.map(json.dumps),
    "l": st.lists(NUMBERS | st.just("null"), max_size=3).map(lambda v: f"[{','.join(v)}]"),
    "o": st.builds('{{"zip":{},"city":{}}}'.format, st.integers(-9, 9), TEXTS),
    "t": st.lists(TIMES.map(json.dumps), max_size=2).map(lambda v: f"[{','.join(v)}]"),
    "ol": st.lists(st.builds('{{"b":true,"d":{}}}'.format, DAYS.map(json.dumps)), max_size=2).map(
        lambda v: f"[{','.join(v)}]"
    ),
    "m": OBJECTS, "deep": st.builds('{{"in":{}}}'.format, OBJECTS | st.just("null")),
}  # fmt: skip


@settings(max_examples=3 * settings().max_examples)
@given(data=st.data())
def test_blocks_of_json_and_single_events_agree(data: st.DataObject) -> None:
    fields = data.draw(st.lists(st.sampled_from(FIELDS), min_size=1, max_size=3, unique=True))
    schema = pa.schema(fields)
    missing = data.draw(st.sampled_from(["error", "null"]))
    is_tidy = data.draw(st.booleans())

    def event() -> str:
        members = [
            f'"{name}":{data.draw(RIGHT[name] if is_tidy else VALUES)}'
            for name in schema.names
            if is_tidy or data.draw(st.integers(0, 5))
        ]
        return "{" + ",".join(members) + "}"

    payloads = [event().encode() for _ in range(data.draw(st.integers(1, 5)))]
    events_of = rules.reader_of_json(schema)
    expected = by_the_rules(payloads, schema, missing, events_of)
    assert seen(decoded(payloads, schema, missing=missing)) == expected
    # Those that can be read are read as a block.
    wrong = {error[0] for error in expected[1]}
    good = [payload for number, payload in enumerate(payloads) if number not in wrong]
    found = seen(decoded(good, schema, missing=missing))
    assert found == by_the_rules(good, schema, missing, events_of)
    assert found[1] == []


PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), TIMES, ENCODED,
    st.binary(max_size=3), st.integers(-(2**40), 2**40).map(lambda s: msgpack.Timestamp(s, 7)),
)  # fmt: skip
PACKED = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["zip", "city", "b", "d", "in", 7]), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_columns_of_messagepack_and_single_events_agree(data: st.DataObject) -> None:
    schema = pa.schema(
        data.draw(st.lists(st.sampled_from(FIELDS), min_size=1, max_size=2, unique=True))
    )
    missing = data.draw(st.sampled_from(["error", "null"]))
    events = st.dictionaries(st.sampled_from(schema.names), PACKED)
    drawn = data.draw(st.lists(events | st.lists(events, max_size=2) | PLAIN, max_size=5))
    payloads = [msgpack.packb(event) for event in drawn]
    expected = by_the_rules(payloads, schema, missing, rules.events_of_msgpack)
    assert seen(decoded(payloads, schema, "msgpack", missing)) == expected
    wrong = {error[0] for error in expected[1]}
    good = [payload for number, payload in enumerate(payloads) if number not in wrong]
    found = seen(decoded(good, schema, "msgpack", missing))
    assert found == by_the_rules(good, schema, missing, rules.events_of_msgpack)
