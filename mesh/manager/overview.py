"""The whole cluster in the order in which a person needs it: problems first, each with its remedy.

A pure function of the views that REST and the command line show, so that all of them agree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from mesh.control.lifecycle import AppState
from mesh.control.membership import HeartbeatStatus
from mesh.manager.nodes import NodeView
from mesh.manager.problems import (
    Concern,
    failing_connectors,
    problem_of_app,
    problem_of_connectors,
    problem_of_errors,
    problem_of_finding,
    problem_of_node,
    problems_of_backlogs,
    problems_of_cluster,
)
from mesh.manager.rates import Flow
from mesh.model.cluster import InstanceState

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from mesh.control.lifecycle import AppStatus
    from mesh.control.verification import Finding
    from mesh.manager.problems import Problem


#: Messages of backlog from which a running app precedes the others in a list.
BACKLOG_MIN: Final = 1000
#: States of apps, the worst first.
_BADNESS: Final = (
    AppState.FAILING,
    AppState.WAITING,
    AppState.RESTORING,
    AppState.RESCALING,
    AppState.STARTING,
    AppState.PAUSED,
    AppState.UNDEPLOYING,
    AppState.RUNNING,
)


@dataclass(frozen=True, slots=True)
class AppSummary:
    """An app with sums over its instances, the counters since they were placed."""

    app: str
    state: AppState
    reason: str | None
    cure: str | None
    instances: int
    running: int
    events_in: int
    events_out: int
    #: Failed events that are recorded: neither replayed nor discarded yet.
    failed: int
    behind: int
    restarts: int
    #: Number of its sources and sinks that fail while the app runs.
    failing_connectors: int = 0


@dataclass(frozen=True, slots=True)
class Overview:
    """The cluster at one moment."""

    #: None if no manager leads.
    leader: str | None
    problems: tuple[Problem, ...]
    #: The worst first, then by name.
    apps: tuple[AppSummary, ...]
    #: Those that are not alive first, then by role and name.
    nodes: tuple[NodeView, ...]

    def of(self, apps: Container[str]) -> Overview:
        """The overview of a user who may see these apps, and the nodes."""
        return replace(
            self,
            problems=tuple(
                problem
                for problem in self.problems
                if problem.concern in (Concern.CLUSTER, Concern.NODE) or problem.name in apps
            ),
            apps=tuple(app for app in self.apps if app.app in apps),
        )

    @property
    def running(self) -> int:
        """Number of apps that run."""
        return sum(app.state is AppState.RUNNING for app in self.apps)

    @property
    def workers(self) -> int:
        """Number of workers that are alive."""
        return sum(n.role == "worker" and n.presence == HeartbeatStatus.ALIVE for n in self.nodes)

    @property
    def workers_ready(self) -> int:
        """Number of workers that can run instances now."""
        return sum(
            n.role == "worker" and n.ready and n.presence == HeartbeatStatus.ALIVE
            for n in self.nodes
        )


def overview(
    apps: Sequence[AppStatus],
    nodes: Sequence[NodeView],
    leader: str | None,
    unready: Sequence[str] = (),
    findings: Sequence[Finding] = (),
    flow: Callable[[str], Flow] = lambda instance: Flow(),
    failed: Mapping[str, int] = MappingProxyType({}),
) -> Overview:
    """The overview of a cluster.

    Args:
        apps: the status of each app.
        nodes: managers and workers.
        leader: the manager that leads; None if none does.
        unready: reasons why the manager that looks can't serve now.
        findings: of the verification of apps.
        flow: the flow of an instance, by name.
        failed: numbers of recorded failed events, by app.
    """
    summaries = sorted((summary(app, failed.get(app.app, 0)) for app in apps), key=_rank)
    ordered = sorted(nodes, key=lambda n: (_presence_rank(n), n.role, n.id))
    problems = [
        *problems_of_cluster(nodes, leader, unready, bool(apps)),
        *(problem_of_node(node) for node in ordered if node.presence != HeartbeatStatus.ALIVE),
        *(problem for app in _by_state(apps) if (problem := problem_of_app(app)) is not None),
        *(
            problem
            for app in _by_state(apps)
            if (problem := problem_of_connectors(app)) is not None
        ),
        *map(problem_of_finding, sorted(findings, key=lambda one: (one.severity, one.app))),
        *(problem for app in _by_state(apps) for problem in problems_of_backlogs(app, flow)),
        *(problem_of_errors(app.app, app.failed) for app in summaries if app.failed),
    ]
    return Overview(leader, tuple(problems), tuple(summaries), tuple(ordered))


def summary(app: AppStatus, failed: int) -> AppSummary:
    """One app in a row, with its number of recorded failed events."""
    ones = app.instances
    return AppSummary(
        app=app.app,
        state=app.state,
        reason=app.reason,
        cure=app.cure,
        instances=len(ones),
        running=sum(one.state == InstanceState.RUNNING for one in ones),
        events_in=sum(one.events_in for one in ones),
        events_out=sum(one.events_out for one in ones),
        failed=failed,
        behind=sum(one.behind for one in ones),
        restarts=sum(one.restarts for one in ones),
        failing_connectors=len(failing_connectors(ones)),
    )


def _by_state(apps: Sequence[AppStatus]) -> list[AppStatus]:
    return sorted(apps, key=lambda app: (_BADNESS.index(app.state), app.app))


def _rank(app: AppSummary) -> tuple[int, bool, bool, bool, str]:
    is_late = app.behind >= BACKLOG_MIN
    return (
        _BADNESS.index(app.state),
        not app.failing_connectors,
        not app.failed,
        not is_late,
        app.app,
    )


def _presence_rank(node: NodeView) -> int:
    order = (HeartbeatStatus.GONE, HeartbeatStatus.SUSPECT, HeartbeatStatus.ALIVE)
    return order.index(HeartbeatStatus(node.presence))
