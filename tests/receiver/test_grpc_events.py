"""Events of gRPC as bytes."""

from __future__ import annotations

import pytest

from tests.support.grpc_ends import event

pytestmark = pytest.mark.nats


async def test_an_event_has_the_bytes_of_the_original() -> None:
    assert event("ab") == b"\x0a\x02ab"
    assert event("a", {"k": "v"}) == b"\x0a\x01a\x12\x06\x0a\x01k\x12\x01v"
