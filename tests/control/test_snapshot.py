"""The kind of a record follows from its whole key."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mesh.control.snapshot import Records, kind_of
from mesh.model import names
from mesh.model.cluster import LeaseRecord, NodeOrder


@pytest.mark.parametrize("key", ["lease2", "lease.x", "leases", ""])
def test_a_key_that_begins_like_the_lease_is_none(key: str) -> None:
    assert kind_of(names.CONTROL_BUCKET, key) is None
    assert kind_of(names.CONTROL_BUCKET, names.LEASE_KEY) is LeaseRecord


#: A bucket and a key of it.
APPS, W1 = names.APPS_BUCKET, names.order_key("w1")


def order(by: str) -> Any:
    from mesh.model.cluster import Admission

    return NodeOrder("w1", Admission.OPEN, by)


def orders(records: Records) -> dict[str, int]:
    return {seen.value.by: seen.revision for seen in records.snapshot(9.0).orders}


@pytest.mark.parametrize(
    ("found", "upto", "left"),
    [
        pytest.param({W1: (order("ada"), 30)}, 30, {"ada": 30}, id="unchanged"),
        pytest.param({W1: (order("bob"), 31)}, 31, {"bob": 31}, id="later"),
        pytest.param({W1: (order("bob"), 7)}, 40, {"bob": 7}, id="an older one alone is left"),
        pytest.param({W1: (order("bob"), 30)}, 30, {"bob": 30}, id="another at the same place"),
        pytest.param({}, 40, {}, id="nothing is left"),
        pytest.param({}, 20, {"ada": 30}, id="written after the read"),
        pytest.param({W1: (order("bob"), 2)}, math.inf, {"bob": 2}, id="gone back below it"),
    ],
)
def test_what_is_known_after_a_bucket_was_read_again(
    found: dict[str, tuple[Any, int]], upto: float, left: dict[str, int]
) -> None:
    records = Records(0.0)
    records.take(APPS, W1, order("ada"), 30, 1.0)
    # Another bucket has its own revisions.
    records.take(names.CONTROL_BUCKET, names.LEASE_KEY, LeaseRecord("m1", 1), 25, 1.0)
    records.take_all(APPS, found, upto, 2.0)
    assert orders(records) == left
    assert records.revision(APPS, W1) == next(iter(left.values()), 0)
    assert records.revision(names.CONTROL_BUCKET, names.LEASE_KEY) == 25


def test_other_keys_that_begin_with_lease_are_no_lease() -> None:
    records = Records(0.0)
    records.take(names.CONTROL_BUCKET, "lease2", LeaseRecord("m9", 1), 3, 1.0)
    assert records.snapshot(2.0).lease is None
