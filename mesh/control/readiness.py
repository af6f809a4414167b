"""Readiness of a manager and of a worker, for the probes of load balancers and containers.

A process is live while it answers.  It is ready without a reason against it.  The reasons are
sentences for people; no reason needs a user, so none has a name or a count of the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.control.agent_events import Membership, SessionPhase

if TYPE_CHECKING:
    from mesh.control.agent_state import AgentState
    from mesh.control.snapshot import ClusterSnapshot


def manager_reasons(
    snapshot: ClusterSnapshot, ttl_s: float, *, is_connected: bool
) -> tuple[str, ...]:
    """Reasons why a manager can't serve now; none if it is ready.

    Args:
        snapshot: the manager's view.
        ttl_s: length of a node's term, seconds.  In half of it the manager's own heartbeats arrive
            twice, so a view that hears nothing for 1.5 terms is cut off.
        is_connected: whether the connection to NATS is up.
    """
    if not is_connected:
        return ("NATS can't be reached",)
    silence_s = snapshot.now_s - snapshot.ages_s
    if silence_s > ttl_s:
        return ("the view of the cluster is not fresh: NATS delivers no heartbeat",)
    return ()


def worker_reasons(state: AgentState | None) -> tuple[str, ...]:
    """Reasons why a worker can't run instances now; none if it is ready.

    Args:
        state: of the agent; None before it has reached NATS.
    """
    if state is None:
        return ("the worker has not reached NATS yet",)
    reasons = []
    if state.session is not SessionPhase.READY:
        reasons.append("the Spark session is starting")
    if state.membership is not Membership.MEMBER or not state.heartbeat.was_stored:
        reasons.append("no heartbeat is stored in NATS")
    if state.leaving:
        reasons.append("the worker hands over and ends")
    return tuple(reasons)
