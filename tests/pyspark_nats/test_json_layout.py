"""Objects of JSON that are laid out alike."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_nats.decode import json_layout, rules
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


def test_flat_objects_laid_out_alike_need_no_parser() -> None:
    fields: list[Any] = [
        ("id", pa.int64()),
        ("s", pa.string()),
        ("x", pa.float32()),
        ("b", pa.bool_()),
    ]
    schema = pa.schema(fields)
    texts = [f'{{"s": "é{n}", "z": {n}, "x": -{n}.5, "b": true, "id": {n}}}' for n in range(20)]
    rows = json_layout.decode_alike(pa.array(texts, pa.string()).cast(pa.binary()), schema)
    assert rows is not None
    assert rows.to_pylist() == [
        {"id": n, "s": f"é{n}", "x": -n - 0.5, "b": True} for n in range(20)
    ]


FLAT: list[Any] = [field for field in FIELDS if not pa.types.is_nested(field[1])]
#: Values that are laid out alike, with a wrong one among them now and then.
ALIKE: dict[str, st.SearchStrategy[str]] = {
    "n": st.integers(-(2**31), 2**31).map(str), "x": NUMBERS, "f": NUMBERS,
    "s": st.text(st.characters(codec="utf-8"), max_size=4).map(
        lambda text: json.dumps(text, ensure_ascii=False)
    ),
    "at": TIMES.map(json.dumps), "ntz": TIMES.map(json.dumps), "day": DAYS.map(json.dumps),
    "raw": ENCODED.map(json.dumps), "d": NUMBERS,
    "z": st.one_of(NUMBERS, st.text(max_size=3).map(json.dumps)),
    "t": st.sampled_from(["true", "false", "truex", "null"]),
}  # fmt: skip


@pytest.mark.slow
@settings(max_examples=3 * settings().max_examples)
@given(data=st.data())
def test_texts_laid_out_alike_and_single_events_agree(data: st.DataObject) -> None:
    fields = data.draw(st.lists(st.sampled_from(FLAT), min_size=1, max_size=3, unique=True))
    fields = [*fields, *data.draw(st.just([]) | st.just([("t", pa.bool_())]))]
    schema = pa.schema(fields)
    names = data.draw(
        st.permutations([*schema.names, *data.draw(st.sampled_from(["", "z", "zz"]))])
    )
    space, comma = data.draw(st.sampled_from(["", " "])), data.draw(st.sampled_from([",", ", "]))
    columns = {
        name: data.draw(
            st.one_of(
                st.lists(ALIKE[name], min_size=4, max_size=4),
                st.sampled_from(["5", "-7", "1.5", "0", '"a"', '""', '"é"', "true"]).map(
                    lambda value: [value] * 4
                ),
            )
        )
        for name in dict.fromkeys(names)
    }
    payloads = [
        ("{" + comma.join(f'"{name}":{space}{columns[name][row]}' for name in names) + "}").encode()
        for row in range(4)
    ]
    events_of = rules.reader_of_json(schema)
    assert seen(decoded(payloads, schema)) == by_the_rules(payloads, schema, "error", events_of)
    for payload in payloads:
        # A block of one: none of its neighbours keeps it from being read that way.
        expected = by_the_rules([payload], schema, "error", events_of)
        assert seen(decoded([payload], schema)) == expected


@settings(deadline=None)
@given(st.lists(st.sampled_from([b'{"a":1,', b'"a":', b'{"b":"', b'"', b"1", b"}", b'"}', b","])))
def test_no_cut_through_objects_laid_out_alike_is_taken_for_one(pieces: list[bytes]) -> None:
    schema = pa.schema([("a", pa.int64())])
    payloads = [b'{"a":1,"b":"x"}', b"".join(pieces), b'{"a":2,"b":"}{"}', *pieces]
    expected = by_the_rules(payloads, schema, "error", rules.reader_of_json(schema))
    assert seen(decoded(payloads, schema)) == expected
