"""Rates of requests."""

from __future__ import annotations

from mesh.api.rates import RateLimits


def test_rates_are_of_each_name_and_fill_with_time() -> None:
    limits = RateLimits(rate=2.0, burst=3.0)
    assert [limits.admit("a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert limits.admit("b", 0.0)
    assert not limits.admit("a", 0.4)
    assert limits.admit("a", 0.6)
    for number in range(10_000):
        limits.admit(str(number), 1.0)
    assert len(limits._left) <= 4096
