"""Random batches of hostile and good messages; ``make fuzz`` plays them for longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from tests.fuzz.messages import BATCHES, check

if TYPE_CHECKING:
    from tests.fuzz.messages import Message


pytestmark = pytest.mark.usefixtures("in_blocks")


@settings(max_examples=2 * settings().max_examples)
@given(batch=BATCHES)
def test_good_events_are_read_and_others_recorded_once_in_any_batch(batch: list[Message]) -> None:
    check(batch)
