"""Planning is arithmetic: its invariants for any numbers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_nats.source import ranges
from pyspark_nats.source.ranges import Backlog, Blocks, StreamRange, StreamState

stream_ranges = st.builds(
    lambda name, start, size: StreamRange(name, start, start + size, 1, 2),
    st.sampled_from("ABC"),
    st.integers(0, 10_000),
    st.integers(0, 10_000),
)


def test_plans_keep_every_partition() -> None:
    start = {"A": {"sequence": 1, "time_ms": 10}, "B": {"sequence": 2, "time_ms": 20}}
    end = {
        "A": {"sequence": 5, "time_ms": 50, "created_ms": 7},
        "B": {"sequence": 2, "time_ms": 60},
    }
    assert ranges.plan([[("A", ())], [("B", ("b.>",))]], start, end) == (
        (StreamRange("A", 1, 5, 10, 50, 0, 7),),
        (StreamRange("B", 2, 2, 20, 60, subjects=("b.>",)),),
    )


@given(
    st.lists(stream_ranges, min_size=1, max_size=4),
    st.integers(0, 50),
    st.none() | st.integers(1, 5000),
)
def test_pieces_are_the_ranges_again(
    whole: list[StreamRange], partitions_min: int, records_max: int | None
) -> None:
    pieces = [p for group in ranges.split([whole], partitions_min, records_max) for p in group]
    at = 0
    for one in whole:
        own = [pieces[at]]
        at += 1
        while own[-1].end != one.end:
            assert pieces[at].start == own[-1].end
            own.append(pieces[at])
            at += 1
        assert own[0].start == one.start
        if records_max is not None:
            assert all(p.end - p.start <= records_max for p in own)
    assert at == len(pieces)
    size = sum(one.end - one.start for one in whole)
    assert len(pieces) >= min(partitions_min, size)


@given(
    st.dictionaries(
        st.sampled_from("ABCD"), st.tuples(st.integers(0, 10**6), st.floats(1, 1e6)), min_size=1
    ),
    st.none() | st.integers(1, 10**6),
    st.none() | st.integers(1, 10**9),
)
def test_a_batch_stays_below_its_limits_and_starves_no_stream(
    given_: dict[str, tuple[int, float]], offsets_max: int | None, bytes_max: int | None
) -> None:
    backlogs = {name: Backlog(count, size) for name, (count, size) in given_.items()}
    takes = ranges.admitted(backlogs, offsets_max, bytes_max)
    assert all(0 <= takes[n] <= one.sequences for n, one in backlogs.items())
    assert all(takes[n] >= 1 for n, one in backlogs.items() if one.sequences)
    floor = sum(1 for n in takes if takes[n] == 1)
    if offsets_max is not None:
        assert sum(takes.values()) <= offsets_max + floor
    if bytes_max is not None:
        least = sum(backlogs[n].message_bytes for n in takes if takes[n] == 1)
        assert sum(takes[n] * backlogs[n].message_bytes for n in takes) <= bytes_max * 1.001 + least


@given(
    st.integers(0, 300), st.integers(0, 300), st.integers(1, 16), st.integers(1, 4),
    st.sets(st.integers(1, 600), max_size=5),
)  # fmt: skip
def test_the_first_hole_is_found(
    start: int, length: int, size: int, count: int, gone: set[int]
) -> None:
    end = start + length
    for index in range(count):
        blocks = Blocks(size, index, count)
        own = [s for s in range(start + 1, end + 1) if count == 1 or (s // size) % count == index]
        kept = np.array([s for s in own if s not in gone], np.int64)
        every = np.arange(start + 1, end + 1)
        assert every[blocks.owned(every)].tolist() == own
        holes = [s for s in own if s in gone]
        assert blocks.first_hole(start, end, kept) == (holes[0] if holes else None)


@pytest.mark.parametrize(
    ("wanted", "state", "missing"),
    [
        # Whole, and with gaps inside.
        (StreamRange("S", 4, 9, 0, 0), StreamState(5, 9, 1), None),
        (StreamRange("S", 4, 9, 0, 0), StreamState(1, 20, 1), None),
        # Expired at the head; partly, and all of it.
        (StreamRange("S", 4, 9, 0, 0), StreamState(7, 20, 1), (5, 6)),
        (StreamRange("S", 4, 9, 0, 0), StreamState(15, 20, 1), (5, 9)),
        # Cut short.
        (StreamRange("S", 4, 9, 0, 0), StreamState(1, 6, 1), (7, 9)),
        # Made again: by creation, by the offset's time, not at all for a copy's time.
        (StreamRange("S", 4, 9, 0, 0, 3, 3), StreamState(1, 20, 1), (5, 9)),
        (StreamRange("S", 4, 9, 0, 0, 3, 1), StreamState(1, 20, 1), (1, 4)),
        (StreamRange("S", 4, 9, 5, 0), StreamState(1, 20, 8), (1, 4)),
        (StreamRange("S", 4, 9, 5, 0), StreamState(1, 20, 8, is_copy=True), None),
        # Nothing was read of the old one.
        (StreamRange("S", 0, 9, 5, 0, 3, 8), StreamState(1, 20, 8), None),
    ],
)
def test_loss_is_what_is_asked_for_and_gone(
    wanted: StreamRange, state: StreamState, missing: tuple[int, int] | None
) -> None:
    lost = ranges.loss(wanted, state)
    assert (lost and (lost.first, lost.last)) == missing
    rest = ranges.without_loss(wanted, state)
    assert ranges.loss(StreamRange("S", rest.start, rest.end, 0, 0), state) is None


def test_cuts_do_not_overlap() -> None:
    pieces = ranges.split([[StreamRange("S", 10, 110, 0, 0)]], 7, None)
    assert all(a[0].end == b[0].start for a, b in pairwise(pieces))
    assert len(pieces) == 7
