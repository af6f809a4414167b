"""Offsets at which a query starts."""

from __future__ import annotations

from mesh.spark.local_state import InputPosition
from mesh.spark.start_offsets import start_offsets
from tests.support.local_states import io


def reached(keyed: str, sequence: int, rates: int) -> InputPosition:
    places = {keyed: sequence, "mesh-Rates-Rates": rates}
    offsets = {name: {"sequence": n, "time_ms": n} for name, n in places.items()}
    return InputPosition.of(offsets, offsets)


def test_a_stream_that_several_partitions_read_begins_where_the_last_of_them_is() -> None:
    first, second = (f"mesh-Rates-Trades-by-symbol-{p}" for p in io(1).partitions)
    found = start_offsets(io(1), {0: reached(first, 9, 4), 2: reached(second, 5, 7)})
    assert {name: place["sequence"] for name, place in found.items()} == {
        first: 9,
        second: 5,
        "mesh-Rates-Rates": 4,
    }
    # One without a snapshot needs all of it.
    assert list(start_offsets(io(1), {0: reached(first, 9, 4)})) == [first]
