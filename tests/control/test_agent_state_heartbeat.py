"""Heartbeats of a worker: when the next one is sent, how long it may take, and when a term ends."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mesh.control.agent_events import HeartbeatPhase
from mesh.control.agent_state import EARLY_S, ELECTION_S, HeartbeatCycle
from mesh.control.membership import BEATS_PER_TERM

TTL_S = 8.0


def test_the_first_one_is_due_at_once_and_the_next_a_part_of_a_term_later() -> None:
    cycle = HeartbeatCycle(TTL_S, 100.0)
    assert cycle.is_due(100.0)
    cycle.send(100.0)
    assert not cycle.is_due(107.0)
    assert cycle.wake_s == float("inf")
    cycle.renew()
    cycle.rest(100.5)
    assert cycle.wake_s == 100.5 + TTL_S / BEATS_PER_TERM
    assert not cycle.is_due(cycle.wake_s - 0.1)
    assert cycle.is_due(cycle.wake_s)
    assert (cycle.count, cycle.was_stored) == (1, True)


def test_an_urgent_one_does_not_wait_for_its_period() -> None:
    cycle = HeartbeatCycle(TTL_S, 0.0)
    cycle.send(0.0)
    cycle.is_urgent = True
    assert not cycle.is_due(0.0), "one is under way"
    cycle.renew()
    cycle.rest(0.0)
    assert cycle.is_due(0.0)
    cycle.send(0.1)
    assert not cycle.is_urgent


def test_a_term_counts_from_the_sending_of_the_last_stored_one() -> None:
    cycle = HeartbeatCycle(TTL_S, 0.0)
    cycle.send(1.0)
    cycle.renew()
    cycle.rest(3.0)
    assert cycle.term_ends_s == 1.0 + TTL_S
    # It was sent, and nobody knows whether it was stored.
    cycle.send(6.0)
    assert not cycle.is_over(8.9)
    assert cycle.is_over(9.0)


def test_an_election_extends_a_term_and_not_without_end() -> None:
    cycle = HeartbeatCycle(TTL_S, 0.0)
    cycle.send(0.0)
    cycle.renew()
    for sent_s in (6.0, 12.0, 18.0):
        cycle.send(sent_s)
        cycle.extend()
        assert cycle.term_ends_s == sent_s + TTL_S
    cycle.send(ELECTION_S)
    cycle.extend()
    assert cycle.term_ends_s == 18.0 + TTL_S


@example(sent_s=6.0, answered_s=1.0, is_stored=False)
@given(sent_s=st.floats(0, 12), answered_s=st.floats(0, 30), is_stored=st.booleans())
def test_no_attempt_and_no_rest_outlasts_the_term(
    sent_s: float, answered_s: float, is_stored: bool
) -> None:
    cycle = HeartbeatCycle(TTL_S, 0.0)
    limit_s = cycle.limit_s(sent_s)
    assert 0 < limit_s <= TTL_S / 2
    if not cycle.is_over(sent_s):
        assert sent_s + limit_s <= cycle.term_ends_s
    cycle.send(sent_s)
    if is_stored:
        cycle.renew()
    now_s = sent_s + answered_s
    cycle.rest(now_s)
    assert cycle.phase is HeartbeatPhase.RESTING
    assert now_s < cycle.wake_s <= now_s + TTL_S / BEATS_PER_TERM
    if now_s < cycle.term_ends_s - EARLY_S:
        assert cycle.wake_s <= cycle.term_ends_s


def test_a_new_term_begins_with_one_that_is_due() -> None:
    cycle = HeartbeatCycle(TTL_S, 0.0)
    assert cycle.is_over(50.0)
    cycle.start_term(50.0)
    assert not cycle.is_over(50.0)
    assert cycle.is_due(50.0)
    assert cycle.limit_s(50.0) == pytest.approx(TTL_S / 2)
