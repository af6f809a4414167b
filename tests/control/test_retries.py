"""Rests between attempts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mesh.control.retries import Retries


@given(
    first_s=st.floats(0, 100),
    most_s=st.floats(0, 1e4),
    times=st.lists(st.tuples(st.booleans(), st.floats(0, 1e5)), max_size=60),
)
def test_a_rest_is_never_shorter_than_the_first_nor_longer_than_its_bound(
    first_s: float, most_s: float, times: list[tuple[bool, float]]
) -> None:
    found, now_s = Retries(first_s, most_s), 0.0
    for fails, later_s in times:
        now_s += later_s
        found = found.failed(now_s) if fails else found.running(now_s)
        assert first_s <= found.rest_s <= max(first_s, most_s)
