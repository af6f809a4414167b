"""Selectors and output rates: however the input is cut and restored, the output is the same.

``order by``: columns of numbers sort rows as comparing their values one by one does.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.functions.vectors import Vector, from_arrow
from mesh.language.syntax import Direction
from mesh.model.types import AttributeType
from mesh.operators.executor import Executor
from mesh.operators.select.selector import sort_columns
from tests.support.examples import examples
from tests.support.recorder import Recorder, log_of

SELECTS = {
    "every aggregator": "from S#window.length(3) select s, sum(k) as a, avg(v) as b, min(v) as c, "
    "max(k) as d, stdDev(v) as e, distinctCount(s) as f, distinctCount(k) as g, minForever(v) as h,"
    " maxForever(k) as i, or(k > 0) as j, count() as l group by s insert all events into O;",
    "sets": "from S#window.length(3) select s, sizeOfSet(unionSet(createSet(v))) as n group by s "
    "insert all events into O;",
    "collections": "from S#window.length(3) select s, str:groupConcat(s, '-', true, 'desc') as a, "
    "str:groupConcat(k) as b, math:percentile(v, 60.0) as c, "
    "json:group(str:concat('[', k, ']'), true) as d, json:toString(list:collect(v)) as e, "
    "map:toJSON(map:collect(k, s)) as f, json:toString(list:merge(list:create(k, v))) as g, "
    "map:size(map:merge(map:create(s, v))) as h group by s insert all events into O;",
    "batches": "from S#window.lengthBatch(3) select s, sum(v) as t, min(k) as m, "
    "distinctCount(k) as d group by s order by t desc limit 2 insert all events into O;",
    "guards": "from S#window.lengthBatch(3) select (sum(k) > 1 and count() > 2) as a, "
    "ifThenElse(k > 0, sum(v), 0.0) as b insert into O;",
    "having": "from S#window.length(2) select s, v having sum(v) > 1.0 insert into O;",
}
_RATES = (
    "all every 3 events", "first every 3 events", "last every 3 events", "all every 9 milliseconds",
    "first every 9 milliseconds", "last every 9 milliseconds", "snapshot every 9 milliseconds",
)  # fmt: skip
_BODIES = {
    "no window": "from S select s, k, v {} insert into O;",
    "groups": "from S select s, k, sum(v) as t group by s {} insert into O;",
    "window": "from S#window.length(3) select k, v {} insert all events into O;",
    "window, aggregate": "from S#window.time(20) select k, count() as n {} insert into O;",
    "window, groups": "from S#window.length(3) select s, k, sum(v) as t group by s {} "
    "insert all events into O;",
    "window, only aggregates": "from S#window.length(3) select count() as n, max(v) as m group by s"
    " {} insert all events into O;",
    "partition": "partition with (k of S) begin from S select s, k, sum(v) as t group by s {} "
    "insert into O; end;",
}
APPS = SELECTS | {
    f"{rate}, {name}": body.format(f"output {rate}")
    for rate in _RATES
    for name, body in _BODIES.items()
}
_VALUE = st.one_of(st.none(), st.floats(-5, 5).map(lambda x: round(x, 1)))
_EVENT = st.tuples(
    st.just("S"),
    st.integers(0, 12),
    st.one_of(st.none(), st.integers(-1, 2)),
    _VALUE,
    st.sampled_from([None, "a", "b", "null"]),
)
START_MS, END_MS = 1000, 1700


def recorder_of(text: str) -> Recorder:
    """A recorder that supports queries in partitions too."""
    recorder = Recorder(text)
    recorder.inputs, recorder.outputs = ("S",), ("O",)
    recorder.executor = Executor(recorder.app, recorder.outputs)
    return recorder


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", APPS)
@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(_EVENT, max_size=25), data=st.data())
def test_cuts_and_restarts_change_nothing(name: str, steps: list[Any], data: Any) -> None:
    recorder, whole = recorder_of(APPS[name]), recorder_of(APPS[name])
    log = log_of(steps, ("S",))
    for one in (recorder, whole):
        one.run([], {"S": START_MS})
    count = len(log["S"])
    at = 0
    while at < count:
        stop = data.draw(st.integers(at + 1, min(at + 6, count)))
        clock_ms = max(time_ms for time_ms, _ in log["S"][:stop])
        recorder.run([recorder.part(log, "S", at, stop)], {"S": clock_ms})
        at = stop
        if data.draw(st.booleans()):
            recorder.restart()
    recorder.run([], {"S": END_MS})
    whole.run([whole.part(log, "S", 0, count)] if count else [], {"S": END_MS})
    assert sorted(recorder.rows) == sorted(whole.rows)


VALUES: dict[AttributeType, st.SearchStrategy[Any]] = {
    AttributeType.INT: st.integers(-(2**31), 2**31 - 1),
    AttributeType.LONG: st.integers(-(2**63), 2**63 - 1),
    AttributeType.FLOAT: st.floats(width=32),
    AttributeType.DOUBLE: st.floats() | st.sampled_from([0.0, -0.0, math.nan]),
    AttributeType.STRING: st.text("aÄz\uffff\U0001f600", max_size=3),
    AttributeType.BOOL: st.booleans(),
}


def compared(a: Any, b: Any) -> int:
    """As Java's ``compareTo``."""
    if isinstance(a, str):
        a, b = a.encode("utf-16-be"), b.encode("utf-16-be")
    elif isinstance(a, float):
        if math.isnan(a) or math.isnan(b):
            return int(math.isnan(a)) - int(math.isnan(b))
        if a == b == 0.0:
            a, b = math.copysign(1.0, a), math.copysign(1.0, b)
    return int(a > b) - int(a < b)


@given(data=st.data())
@pytest.mark.parametrize("type", VALUES)
def test_rows_are_in_the_order_of_their_values(type: AttributeType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | VALUES[type], max_size=12))
    direction = data.draw(st.sampled_from(Direction))
    vector = from_arrow(pa.array(values, type.arrow), type)
    columns = sort_columns([(vector, direction)])
    found = np.lexsort([np.asarray(column) for column in columns[::-1]]).tolist()
    sign = -1 if direction is Direction.DESCENDING else 1

    def before(one: int, other: int) -> int:
        a, b = values[one], values[other]
        if a is None or b is None:
            return int(a is None) - int(b is None)
        return sign * compared(a, b)

    expected = sorted(range(len(values)), key=functools.cmp_to_key(before))
    if type is AttributeType.DOUBLE and any(
        v is not None and math.isnan(v) and struct.pack(">d", v) != struct.pack(">d", math.nan)
        for v in values
    ):
        # NaNs with other bits are equal as well, so that they keep their order.
        assert [values[n] is None for n in found] == [values[n] is None for n in expected]
    assert found == expected


def test_the_first_key_counts_most() -> None:
    first = from_arrow(pa.array([2, 1, 2, 1], pa.int32()), AttributeType.INT)
    second = from_arrow(pa.array(["a", "b", None, "a"]), AttributeType.STRING)
    keys = [(first, Direction.ASCENDING), (second, Direction.DESCENDING)]
    columns = [np.asarray(column) for column in sort_columns(keys)]
    assert np.lexsort(columns[::-1]).tolist() == [1, 3, 0, 2]


def test_nulls_keep_their_order_whatever_is_in_their_place() -> None:
    vector = Vector(
        AttributeType.INT, np.array([9, 1, 5], dtype=np.int32), np.array([True, True, False])
    )
    for direction in Direction:
        columns = [np.asarray(column) for column in sort_columns([(vector, direction)])]
        assert np.lexsort(columns[::-1]).tolist() == [2, 0, 1]
