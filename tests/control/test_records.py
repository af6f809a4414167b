"""The kind of a record follows from its whole key."""

from __future__ import annotations

import pytest

from mesh.control.records import kind_of
from mesh.model import names
from mesh.model.cluster import LeaseRecord


@pytest.mark.parametrize("key", ["lease2", "lease.x", "leases", ""])
def test_a_key_that_begins_like_the_lease_is_none(key: str) -> None:
    assert kind_of(names.CONTROL_BUCKET, key) is None
    assert kind_of(names.CONTROL_BUCKET, names.LEASE_KEY) is LeaseRecord
