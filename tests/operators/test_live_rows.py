"""Snapshots of the output, beside a model that is a list of events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.operators.base import CURRENT, EXPIRED, RESET
from mesh.operators.output_rate import live_rows
from mesh.operators.output_rate.live_rows import LiveRows, Shows
from tests.support.examples import examples

FIELDS: list[tuple[str, pa.DataType]] = [
    ("k", pa.string()),
    ("d", pa.float64()),
    ("n", pa.int64()),
]
SCHEMA = pa.schema(FIELDS)
#: The attribute that is an aggregator.
AGGREGATE = 2

#: Instance, group within it, kind, values of k and d; n is the event's number.
Event = tuple[int, int, int, str | None, float | None]
Shown = tuple[int, int, str | None, str, int]


@dataclass
class Model:
    """One instance: its present events, and of each group the newest aggregate."""

    shows: Shows
    grouped: bool
    there: list[tuple[int, int, str | None, str, int]] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)

    def take(self, group: int, kind: int, k: str | None, d: str, n: int) -> None:
        line = (n, kind, k, d, n)
        group = group if self.grouped else 0
        if self.shows is Shows.ALL:
            self._take_one_of_all(group, kind, line)
        elif self.shows is Shows.LAST_PRESENT:
            self.there, self.groups = ([line], [0]) if kind == CURRENT else ([], [])
        elif group in self.groups:
            self.there[self.groups.index(group)] = line
            self.counts[group] += 1 if kind == CURRENT else -1
        elif kind == CURRENT or self.shows is Shows.LAST:
            self.there.append(line)
            self.groups.append(group)
            self.counts[group] = 1

    def _take_one_of_all(self, group: int, kind: int, line: Shown) -> None:
        if kind == RESET:
            self.there, self.groups, self.newest = [], [], {}
            return
        alike = [
            at
            for at, (other, of) in enumerate(zip(self.there, self.groups, strict=True))
            if of == group and other[2:4] == line[2:4]
        ]
        if kind == CURRENT:
            self.there.append(line)
            self.groups.append(group)
        elif alike:
            del self.there[alike[0]], self.groups[alike[0]]
        else:
            return
        self.newest[group] = line[4]

    def show(self) -> list[Shown]:
        if self.shows is Shows.LAST_OF_GROUPS:
            gone = [group for group in self.groups if self.counts[group] <= 0]
            for group in gone:
                del self.there[self.groups.index(group)]
                self.groups.remove(group)
        if self.shows is not Shows.ALL:
            return list(self.there)
        shown: list[Shown] = []
        for at, (group, line) in enumerate(zip(self.groups, self.there, strict=True)):
            if not self.grouped or group not in self.groups[:at]:
                shown.append((*line[:4], self.newest[group]))
        return shown


def text(value: Any) -> str:
    """Text that distinguishes values: NaN equals itself, and 0.0 is not -0.0."""
    return repr(value)


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from([CURRENT, CURRENT, EXPIRED, EXPIRED, RESET]),
        st.sampled_from(["x", "y", "null", None]),
        st.sampled_from([0.0, -0.0, float("nan"), 1.5, None]),
    ),
    min_size=1,
    max_size=60,
)
WAYS = [
    (Shows.LAST, False),
    (Shows.LAST, True),
    (Shows.LAST_PRESENT, False),
    (Shows.LAST_OF_GROUPS, True),
    (Shows.ALL, False),
    (Shows.ALL, True),
]


def kinds_of(shows: Shows, grouped: bool, kind: int) -> int:
    """Kinds of events: without a window none expires, and with groups there is no reset."""
    if shows is Shows.LAST:
        return CURRENT
    return EXPIRED if kind == RESET and grouped else kind


@pytest.mark.parametrize(("shows", "grouped"), WAYS)
@given(
    runs=st.lists(EVENTS, min_size=1, max_size=6),
    after=st.sampled_from(["nothing", "a restart", "an instance forgotten"]),
)
@settings(max_examples=examples(60), deadline=None)
def test_it_is_as_a_list_would_be(
    shows: Shows, grouped: bool, runs: list[list[Event]], after: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # Whatever can be swept is.
        patch.setattr(live_rows, "_SPARE", 0)
        there = LiveRows(shows, SCHEMA, [AGGREGATE], grouped=grouped)
        models = [Model(shows, grouped) for _ in range(3)]
        number = 0
        for run in runs:
            kinds = [kinds_of(shows, grouped, kind) for _, _, kind, _, _ in run]
            numbers = np.arange(number, number + len(run))
            number += len(run)
            rows = pa.RecordBatch.from_arrays(
                [
                    pa.array([k for *_, k, _ in run], pa.string()),
                    pa.array([d for *_, d in run], pa.float64(), from_pandas=False),
                    pa.array(numbers),
                ],
                schema=SCHEMA,
            )
            instance = np.array([i for i, *_ in run])
            # Groups of different instances are different.
            group = instance * 3 + np.array([g for _, g, *_ in run])
            coming = there.come(rows, numbers, np.array(kinds, dtype=np.int8), instance, group)
            half = len(run) // 2
            there.follow(coming, 0, half)
            there.follow(coming, half, len(run))
            for (i, g, _, k, d), kind, n in zip(run, kinds, numbers.tolist(), strict=True):
                models[i].take(g, kind, k, text(d), n)
            if after == "an instance forgotten":
                there.forget(np.array([1, 7]))
                models[1] = Model(shows, grouped)
            elif after == "a restart":
                state = there.snapshot()
                there = LiveRows(shows, SCHEMA, [AGGREGATE], grouped=grouped)
                there.restore(state)
            expected = [line for model in models for line in model.show()]
            counts = [there.show(i) for i in range(4)]
            assert sum(counts) == len(expected)
            time_ms, kind_of, shown = there.shown()
            texts, doubles, ns = (column.to_pylist() for column in shown.columns)
            found = zip(
                time_ms.tolist(), kind_of.tolist(), texts, map(text, doubles), ns, strict=True
            )
            assert list(found) == expected
            there.sweep()
