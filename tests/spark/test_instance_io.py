"""Names of what an instance reads and writes."""

from __future__ import annotations

from tests.support.local_states import io


def test_snapshots_of_a_partition_have_one_name_whoever_owns_it() -> None:
    assert [io(i).part(p) for i in (1, 2) for p in io(i).partitions] == list("0213")
