"""The life cycle of an instance: its table, and any order of events."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.control import instance_lifecycle as events
from mesh.control.instance_lifecycle import (
    UNANSWERED_S,
    InstanceLifecycle,
    IsolationPeriod,
    IsolationReason,
    Phase,
)
from mesh.control.retries import Retries
from mesh.model.cluster import InstanceState, InstanceStatus
from tests.support.examples import examples

SETTLE_S = 10.0
RETRY_S = 1.0

RUNNING, RETRYING = InstanceState.RUNNING, InstanceState.RETRYING


def new(until: dict[str, int] | None = None) -> InstanceLifecycle:
    return InstanceLifecycle(Retries(RETRY_S, 60.0), SETTLE_S, until)


def after(*given: events.Event, until: dict[str, int] | None = None) -> InstanceLifecycle:
    """The life cycle after these events, at time 0."""
    life = new(until)
    for event in given:
        life.handle(event, 0.0)
    return life


STARTED, RESTORED, UP, LEFT = events.Started(), events.Restored(), events.Up(), events.Left()
DRAIN, STOP = events.StopRequested(drains=True), events.StopRequested()


def isolated(state: InstanceState, **more: object) -> events.IsolatedReported:
    return events.IsolatedReported(InstanceStatus("i", "A", "w", 1, state, 0, **more))  # type: ignore[arg-type]


def test_one_that_drains_stores_its_state_and_says_where() -> None:
    life = after(STARTED, RESTORED, UP)
    assert life.state is InstanceState.RUNNING
    assert life.handle(DRAIN, 0.0) == [events.Leave(at_once=False)]
    assert life.handle(LEFT, 1.0) == [events.Settle(drains=True)]
    assert life.handle(events.Settled({"S": 7}), 1.1) == [events.End()]
    assert (life.settled, life.state) == ({"S": 7}, InstanceState.STOPPED)


def test_one_with_output_beyond_its_position_reads_on_while_there_is_time() -> None:
    life = after(STARTED, RESTORED, UP, DRAIN, LEFT)
    assert life.handle(events.Unsettled({"S": 9}), 1.0) == [events.Run({"S": 9}, continues=True)]
    # Asked again, it goes on as it does.
    assert life.handle(DRAIN, 2.0) == []
    assert life.handle(events.Ticked(), SETTLE_S - 0.1) == []
    assert life.handle(events.Ticked(), SETTLE_S) == [events.Leave(at_once=True)]
    assert life.handle(LEFT, SETTLE_S) == [events.Settle(drains=False)]
    assert life.handle(events.Settled(), SETTLE_S) == [events.End()]
    assert life.settled is None


def test_one_with_output_that_no_input_explains_says_so() -> None:
    life = after(STARTED, RESTORED, UP, LEFT, until={"S": 3})
    assert life.handle(events.Unsettled(None), 0.0) == [events.ReportState()]
    assert life.phase is Phase.RESTING
    assert "restore a backup" in str(life.error)


@pytest.mark.parametrize("settled", [True, False])
def test_one_with_an_end_ends_there_by_itself(settled: bool) -> None:
    life = after(STARTED, RESTORED, UP, until={"S": 3})
    assert life.handle(LEFT, 0.0) == [events.Settle(drains=True)]
    done = life.handle(events.Settled({"S": 3} if settled else None), 0.0)
    assert done == ([events.End()] if settled else [events.Restore()])


def test_a_failed_one_rests_longer_each_time_and_restores() -> None:
    life = after(STARTED, RESTORED, UP)
    at_s = 0.0
    for rest_s in (1.0, 2.0, 4.0):
        assert life.handle(events.Failed("broken"), at_s) == [events.ReportState()]
        assert (life.state, life.rest_s) == (InstanceState.RETRYING, rest_s)
        assert life.handle(events.Ticked(), at_s + rest_s - 0.1) == []
        at_s += rest_s
        assert life.handle(events.Ticked(), at_s) == [events.Restore()]
    assert (life.failures, life.error) == (3, "broken")


def test_one_that_was_replaced_ends_and_keeps_the_reason() -> None:
    life = after(STARTED, RESTORED, UP)
    assert life.handle(events.Replaced("epoch 7", has_ended=False), 0.0) == [events.Leave(True)]
    assert life.handle(LEFT, 0.0) == [events.Settle(drains=False)]
    assert life.handle(events.Failed("not stored"), 0.0) == [events.End()]
    assert life.error == "epoch 7"


def test_a_suspect_is_isolated_until_it_is_trusted() -> None:
    life = after(STARTED, RESTORED, UP)
    life.handle(events.Failed("killed", is_suspect=True), 0.0)
    assert life.handle(events.Ticked(), RETRY_S) == [events.Isolate(IsolationReason.SUSPECT)]
    running = isolated(InstanceState.RUNNING)
    assert life.handle(running, 2.0) == [events.Relay(running.status)]
    assert life.handle(running, 602.0) == [
        events.Relay(running.status),
        events.StopIsolated(drains=True),
    ]
    stopped = isolated(InstanceState.STOPPED, settled=True, position={"S": 4})
    assert life.handle(stopped, 603.0) == [events.Restore()]


def test_one_that_is_isolated_when_it_is_to_stop_ends_with_its_query() -> None:
    life = after(STARTED, RESTORED, UP, events.Failed("x", is_suspect=True))
    life.handle(events.Ticked(), RETRY_S)
    assert life.handle(DRAIN, 2.0) == [events.StopIsolated(drains=True)]
    stopped = isolated(InstanceState.STOPPED, settled=True, position={"S": 4})
    assert life.handle(stopped, 3.0) == [events.End()]
    assert life.settled == {"S": 4}


@pytest.mark.parametrize(("between_s", "is_isolated"), [(UNANSWERED_S - 1, True), (200.0, False)])
def test_a_stream_that_does_not_answer_twice_isolates(between_s: float, is_isolated: bool) -> None:
    life = after(STARTED, RESTORED, UP)
    for at_s in (0.0, between_s):
        life.handle(events.Failed("no answer", has_waited=True, is_unanswered=True), at_s)
        (next_step,) = life.handle(events.Ticked(), at_s + RETRY_S)
        if at_s == 0.0:
            assert next_step == events.Restore()
            life.handle(RESTORED, at_s + RETRY_S)
    assert isinstance(next_step, events.Isolate) is is_isolated


def test_a_query_that_is_lost_costs_no_rest() -> None:
    assert after(STARTED, RESTORED, UP).handle(events.QueryLost(), 0.0) == [events.Restore()]
    assert after(STARTED, RESTORED, UP, DRAIN).handle(events.QueryLost(), 0.0) == [events.End()]


def test_what_can_not_happen_is_the_drivers_fault() -> None:
    with pytest.raises(RuntimeError, match="Restored"):
        after(STARTED, RESTORED, UP).handle(RESTORED, 0.0)


#: What a driver may answer to the instruction under way, by phase.
ANSWERS: dict[Phase, list[events.Event]] = {
    Phase.RESTORING: [RESTORED, events.Failed("a")],
    Phase.JOINING: [UP, LEFT, events.Failed("b"), events.QueryLost()],
    Phase.RUNNING: [
        LEFT,
        events.Failed("c", is_suspect=True),
        events.Failed("d", has_waited=True, is_unanswered=True),
        events.QueryLost(),
    ],
    Phase.LEAVING: [LEFT, UP, events.Failed("e"), events.QueryLost()],
    Phase.SETTLING: [
        events.Settled(),
        events.Settled({"S": 1}),
        events.Unsettled({"S": 2}),
        events.Unsettled(None),
        events.Failed("f"),
    ],
    Phase.RESTING: [events.Ticked()],
    Phase.ISOLATED: [
        isolated(InstanceState.RUNNING),
        isolated(InstanceState.STOPPED),
        isolated(InstanceState.STOPPED, settled=True),
    ],
}
#: What may happen in any phase.
ANY: list[events.Event] = [
    DRAIN,
    STOP,
    events.Ticked(),
    events.Replaced("newer", has_ended=False),
]


@given(st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=examples(300), deadline=None)
def test_any_order_of_events_ends_in_one_end(choose: random.Random, has_until: bool) -> None:
    life = new({"S": 3} if has_until else None)
    done = life.handle(STARTED, 0.0)
    now_s, ends, is_leaving, asked = 0.0, 0, False, False
    for step in itertools.count():
        for one in done:
            # One thing at a time: reading is told to stop only while something is read.
            is_leaving = isinstance(one, events.Leave)
            assert not is_leaving or life.phase is Phase.LEAVING
            assert not isinstance(one, events.Settle) or life.phase is Phase.SETTLING
            ends += isinstance(one, events.End)
        if life.phase is Phase.STOPPED:
            break
        now_s += choose.choice([0.1, 5.0, 700.0])
        asked = asked or step > 30
        event = STOP if step == 31 else choose.choice(ANSWERS[life.phase])
        if step < 30 and choose.random() < 0.2:
            event = choose.choice(ANY)
        done = life.handle(event, now_s)
        assert step < 200, "it does not end"
    assert ends == 1
    assert life.state is InstanceState.STOPPED
    assert life.handle(STOP, now_s) == [events.ReportState()]


def test_each_phase_takes_what_may_happen_in_it() -> None:
    reached = {
        Phase.NEW: after(),
        Phase.RESTORING: after(STARTED),
        Phase.JOINING: after(STARTED, RESTORED),
        Phase.RUNNING: after(STARTED, RESTORED, UP),
        Phase.LEAVING: after(STARTED, RESTORED, UP, DRAIN),
        Phase.SETTLING: after(STARTED, RESTORED, UP, LEFT),
        Phase.RESTING: after(STARTED, events.Failed("x")),
        Phase.STOPPED: after(STARTED, events.Replaced("x", has_ended=True)),
    }
    assert {phase for phase, life in reached.items() if life.phase is phase} == {
        phase for phase in Phase if phase is not Phase.ISOLATED
    }
    for phase, life in reached.items():
        for event in (events.Ticked(), events.QueryLost()):
            if not (
                isinstance(event, events.QueryLost)
                and phase in (Phase.JOINING, Phase.RUNNING, Phase.LEAVING)
            ):
                life.handle(event, 0.0)
                assert life.phase is phase


def status(
    state: InstanceState = RUNNING, messages_in: int = 0, restarts: int = 0, behind: int = 0
) -> InstanceStatus:
    return InstanceStatus(
        "A-g-1", "A", "w", 1, state, 0,
        messages_in=messages_in, restarts=restarts, behind=behind,
    )  # fmt: skip


def over_at(term: IsolationPeriod, *told: tuple[float, InstanceStatus]) -> list[float]:
    return [now_s for now_s, one in told if term.is_over(one, now_s)]


def test_one_whose_streams_answer_again_stays_apart_for_a_while_though_it_works() -> None:
    told = [(0.0, status(RETRYING)), (100.0, status(messages_in=1)), (159.0, status(messages_in=2))]
    told += [(160.0, status(messages_in=3))]
    assert over_at(IsolationPeriod(IsolationReason.UNANSWERED), *told) == [160.0]


@pytest.mark.parametrize(("times", "length_s"), [(1, 600.0), (2, 1200.0), (4, 4800.0)])
def test_a_suspect_is_trusted_later_each_time(times: int, length_s: float) -> None:
    told = [
        (0.0, status()),
        (100.0, status(restarts=1)),
        (100.0 + length_s - 1, status(restarts=1)),
    ]
    told += [(100.0 + length_s, status(restarts=1))]
    assert over_at(IsolationPeriod(IsolationReason.SUSPECT, times), *told) == [100.0 + length_s]
