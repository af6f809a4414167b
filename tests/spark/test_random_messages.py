"""Random messages through source, host and sink; ``make fuzz`` plays them for longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.publishers import BATCHES
from tests.fuzz.whole_path import check, stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fuzz.publishers import Sent
    from tests.support.shared_query import Hand

pytestmark = [pytest.mark.nats, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def a_stage() -> Iterator[Hand]:
    """A server and a shared query for all examples."""
    with stage() as hand:
        yield hand


QUICK = settings(max_examples=12, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@QUICK
@given(batches=BATCHES)
def test_events_have_their_effect_once_whatever_is_sent_amid_them(
    a_stage: Hand, batches: list[list[Sent]]
) -> None:
    check(a_stage, batches)


@pytest.mark.thorough
@settings(QUICK, max_examples=120)
@given(batches=BATCHES)
def test_many_random_messages(a_stage: Hand, batches: list[list[Sent]]) -> None:
    check(a_stage, batches)
