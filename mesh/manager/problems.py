"""Problems that need a person, each with its cause and its remedy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from mesh.control.lifecycle import AppState
from mesh.control.membership import HeartbeatStatus
from mesh.manager.rates import Flow, total
from mesh.model.cluster import InstanceState
from mesh.model.names import app_of_token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mesh.control.lifecycle import AppStatus, InstanceView
    from mesh.control.verification import Finding
    from mesh.manager.nodes import NodeView
    from mesh.model.cluster import ConnectorStatus

#: Age of the oldest waiting message from which a group needs a person, seconds: that of the alert
#: ``MeshInstanceIsBehind``.
LATE_S: Final = 60.0
#: Failed attempts of a sink that may be a moment's; a source does not count its own.
_FEW_ATTEMPTS: Final = (1, 2)
_CURE_OF_CONNECTOR: Final = "check that its address answers; it is tried again by itself"


class Concern(StrEnum):
    """The kind of thing that a problem is about."""

    CLUSTER = "cluster"
    NODE = "node"
    APP = "app"
    ERRORS = "errors"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that needs a person."""

    concern: Concern
    #: Of the app or the node; empty for the cluster.
    name: str
    #: One word for its state, as elsewhere: ``failing``, ``gone``, ``waiting``.
    state: str
    title: str
    cause: str
    #: The remedy in words.
    cure: str
    #: A command to copy; empty where there is none.
    command: str = ""


def problem_of_app(app: AppStatus) -> Problem | None:
    """The problem of an app that needs a person; None if it does not."""
    if app.state is AppState.FAILING:
        failing = next((i for i in app.instances if i.state == InstanceState.RETRYING), None)
        return Problem(
            Concern.APP,
            app.app,
            app.state.value,
            f"app {app_of_token(app.app)} fails",
            app.reason or "an instance fails again and again",
            app.cure or _cure_of(failing),
            f"mesh status {app.app}",
        )
    if app.state is AppState.WAITING or app.cure:
        return Problem(
            Concern.APP,
            app.app,
            app.state.value,
            f"app {app_of_token(app.app)} does not run: it is {app.state.value}",
            app.reason or "its instances have no place",
            app.cure or "the story of the app says what it waits for",
            f"mesh status {app.app}",
        )
    return None


def problem_of_connectors(app: AppStatus) -> Problem | None:
    """The sources and sinks that fail while the queries of their app run."""
    if app.state is AppState.FAILING:
        return None
    failing = failing_connectors(app.instances)
    if not failing:
        return None
    first, others = failing[0], len(failing) - 1
    more = f", and {others} more" if others else ""
    return Problem(
        Concern.APP,
        app.app,
        InstanceState.RETRYING.value,
        f"{first.name} of app {app_of_token(app.app)} fails{more}",
        ": ".join(filter(None, (first.endpoint, first.error))) or "it is tried again",
        f"{_CURE_OF_CONNECTOR}, and its channel keeps the events meanwhile",
        f"mesh status {app.app}",
    )


def failing_connectors(instances: Iterable[InstanceView]) -> list[ConnectorStatus]:
    """The sources and sinks that have failed more than once or twice."""
    return [
        connector
        for instance in instances
        for connector in instance.connectors
        if connector.state is InstanceState.RETRYING and connector.attempts not in _FEW_ATTEMPTS
    ]


def _cure_of(failing: InstanceView | None) -> str:
    if failing is not None and any(connector.error for connector in failing.connectors):
        return _CURE_OF_CONNECTOR
    return "correct the cause, or deploy a corrected text; it is started again by itself"


def problems_of_cluster(
    nodes: Sequence[NodeView], leader: str | None, unready: Sequence[str], has_apps: bool
) -> list[Problem]:
    """A manager that does not see the cluster, no leader, no worker."""
    problems = [
        Problem(
            Concern.CLUSTER,
            "",
            "unreachable",
            "this manager can't serve",
            reason,
            "check that the NATS servers run, have room, and can be reached from this machine",
            "mesh nodes",
        )
        for reason in unready
    ]
    if leader is None:
        alive = sum(n.role == "manager" and n.presence == HeartbeatStatus.ALIVE for n in nodes)
        cause = f"{alive} managers send heartbeats, and none holds the lease"
        problems.append(
            Problem(
                Concern.CLUSTER,
                "",
                "no leader",
                "no manager leads",
                cause if alive else "no manager sends heartbeats",
                "nothing is placed or moved until one leads: wait a few seconds, or start one",
                "mesh manager",
            )
        )
    workers = [n for n in nodes if n.role == "worker" and n.presence == HeartbeatStatus.ALIVE]
    if has_apps and not any(n.ready for n in workers):
        problems.append(_no_worker(len(workers)))
    return problems


def _no_worker(starting: int) -> Problem:
    """No worker can run the apps; ``starting`` workers start their Spark session."""
    cause, cure, command = "no worker sends heartbeats", "start one", "mesh worker"
    if starting:
        cause = f"{starting} worker{'s' if starting != 1 else ''} without a Spark session yet"
        cure, command = "wait some seconds; if it lasts, look at a worker's log", "mesh nodes"
    title = "no worker is ready, so no app runs"
    return Problem(Concern.CLUSTER, "", "no worker", title, cause, cure, command)


def problem_of_node(node: NodeView) -> Problem:
    """A node whose heartbeats are late or have ended."""
    is_worker = node.role == "worker"
    lost = f"no heartbeat for {node.last_heartbeat_ago_s:.0f} s"
    moved = "; its instances move to other workers" if is_worker else ""
    return Problem(
        Concern.NODE,
        node.id,
        node.presence,
        f"{node.role} {node.id} is {node.presence}",
        lost + (moved if node.presence == HeartbeatStatus.GONE else ""),
        f"start it again if it was not stopped on purpose, or check its machine (pid {node.pid})",
        f"mesh {node.role} --id {node.id}",
    )


def problem_of_finding(finding: Finding) -> Problem:
    """A finding of the verification."""
    return Problem(
        Concern.APP,
        finding.app,
        finding.severity.value,
        f"{finding.severity.value} of app {finding.app}: {finding.kind} in {finding.where}",
        finding.text,
        finding.remedy,
        f"mesh verify {finding.app}",
    )


def problems_of_backlogs(app: AppStatus, flow: Callable[[str], Flow]) -> list[Problem]:
    """The groups of a running app that read more slowly than events arrive."""
    if app.state is not AppState.RUNNING:
        return []
    members: dict[str, list[str]] = {}
    # More instances are no remedy for a source or sink that fails.
    failing = {one.group for one in app.instances if failing_connectors([one])}
    for one in app.instances:
        if one.group not in failing:
            members.setdefault(one.group, []).append(one.instance)
    problems = []
    for group, instances in members.items():
        now = total(map(flow, instances))
        if now.backlog_s < LATE_S:
            continue
        waiting = f"{now.backlog:,} message{'s wait' if now.backlog != 1 else ' waits'}"
        problems.append(
            Problem(
                Concern.APP,
                app.app,
                "behind",
                f"group {group} of app {app.app} is behind",
                f"{waiting}, the oldest for {now.backlog_s:.0f} s; {now.messages:,.0f}/s are read",
                "give the group more instances, or its queries less to do; events are kept",
                f"mesh scale {app.app} {group} {len(instances) + 1}",
            )
        )
    return problems


def problem_of_errors(app: str, errors: int) -> Problem:
    """The failed events of an app."""
    count = f"{errors:,} event{'s' if errors != 1 else ''}"
    return Problem(
        Concern.ERRORS,
        app,
        "errors",
        f"{count} of app {app} failed",
        "they could not be read, or a query failed on them; the app continues without them",
        "look at their reasons; replay them corrected, or discard them",
        f"mesh errors {app}",
    )
