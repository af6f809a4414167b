"""Moments at which the conformance kit ends a host."""

from __future__ import annotations

import pytest

from mesh.testing.connectors import _moments


@pytest.mark.parametrize("idle", [2, 50])
def test_a_source_that_waits_long_is_killed_no_more_often(idle: int) -> None:
    reads = ["before read", "after read"]
    names = ["open", *idle * reads, "before publish", "after publish", *idle * reads, "closed"]
    killed = [names[at] for at in _moments(names)]
    expected = ["open", *2 * reads, "before publish", "after publish", *2 * reads, "closed"]
    assert killed == expected
