"""Readiness of managers and workers, as the probes report it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.control.agent_events import (
    AgentView,
    HeartbeatStored,
    Membership,
    SessionEnded,
    SessionReady,
    TimeReached,
    WorkerStopRequested,
)
from mesh.control.agent_state import AgentState
from mesh.control.readiness import manager_reasons, worker_reasons
from mesh.control.snapshot import ClusterSnapshot, Records
from mesh.model.cluster import NodeRecord, NodeRole
from mesh.settings import Settings

if TYPE_CHECKING:
    from mesh.control.agent_events import Event

TTL_S = 1.5


def agent() -> AgentState:
    identity = NodeRecord(id="w1", role=NodeRole.WORKER, incarnation="a", address="", beat=0, pid=1)
    return AgentState(identity, Settings(), 0.0)


def play(state: AgentState, *events: Event, at_s: float = 0.0) -> None:
    view = AgentView(ClusterSnapshot(now_s=at_s), 0, 0, holder_has_ended=True)
    for event in events:
        state.handle(event, view)


def test_a_manager_is_ready_while_its_view_hears_heartbeats() -> None:
    records = Records(100.0, TTL_S / 2)
    records.hear(102.0)
    fresh = records.snapshot(103.0)
    assert manager_reasons(fresh, TTL_S, is_connected=True) == ()
    assert "can't be reached" in manager_reasons(fresh, TTL_S, is_connected=False)[0]
    stale = records.snapshot(104.5)
    assert "not fresh" in manager_reasons(stale, TTL_S, is_connected=True)[0]


def test_a_worker_is_ready_once_its_session_is_warm_and_a_heartbeat_is_stored() -> None:
    assert worker_reasons(None) == ("the worker has not reached NATS yet",)
    state = agent()
    play(state, TimeReached())
    assert state.membership is Membership.MEMBER
    assert len(worker_reasons(state)) == 2
    play(state, SessionReady(1.0))
    assert worker_reasons(state) == ("no heartbeat is stored in NATS",)
    play(state, HeartbeatStored(1))
    assert worker_reasons(state) == ()


def test_a_worker_is_not_ready_without_its_session_nor_out_of_its_term_nor_when_it_ends() -> None:
    def ready() -> AgentState:
        state = agent()
        play(state, TimeReached(), SessionReady(1.0), HeartbeatStored(1))
        return state

    state = ready()
    play(state, SessionEnded())
    assert worker_reasons(state) == ("the Spark session is starting",)
    state = ready()
    play(state, TimeReached(), at_s=10.0)
    assert worker_reasons(state) == ("no heartbeat is stored in NATS",)
    state = ready()
    play(state, WorkerStopRequested())
    assert worker_reasons(state) == ("the worker hands over and ends",)
