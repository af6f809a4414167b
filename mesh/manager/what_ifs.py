"""What-if, as any manager answers it: a process calibrates the app beside the cluster.

A group of the same text that runs in the cluster, in batches of many messages, has its rate from
the reports of its instances: that is the rate on a worker, with this app's events.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

from mesh.errors import MeshError
from mesh.functions.script_switch import OF_MANAGERS
from mesh.manager.past import FunctionCalls
from mesh.processes.bounded_process import BoundedProcess

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mesh.jetstream.watch import ClusterView
    from mesh.manager.planning import Planner
    from mesh.model.app import AppSpec
    from mesh.model.cluster import InstanceStatus
    from mesh.processes.bounded_process import Process

#: Time for one answer, the start of the process among it, seconds.
ANSWER_S: Final = 240.0
#: Batches of fewer messages cost more for each than those of a busy instance.
BATCH_MIN: Final = 500
_MODULE: Final = "mesh.calibration.measure"


def _exceeded(detail: str) -> MeshError:
    return MeshError(
        "MESH-C170",
        "the app can't be calibrated within its limits",
        detail=detail,
        hint="'mesh plan --at-rate' does it on your machine, without limits.",
    )


#: Of this Python process, so that it is started once.
_PROCESS: Final = BoundedProcess(_MODULE, _exceeded, OF_MANAGERS)


class WhatIfs:
    """Needs of apps at rates; ``process`` measures, tests give one of their own."""

    def __init__(self, planner: Planner, view: ClusterView, process: Process | None = None) -> None:
        self._planner = planner
        self._view = view
        self._questions = FunctionCalls(process or _PROCESS, ANSWER_S, "questions about rates wait")

    async def what_if(self, text: str, at_rate: Sequence[str], keys: int, cores: int) -> Any:
        """The needs of an app at a rate; see ``mesh.calibration.measure.answer``.

        Raises:
            MeshError: MESH-L*, MESH-P* for faults of the text; MESH-C170 for an app that can't be
                calibrated, MESH-C171 for rates that can't be used.
        """
        spec = await self._planner.plan(text)
        snapshot = self._view.snapshot()
        current = snapshot.app(spec.name)
        statuses = [seen.value for seen in snapshot.statuses]
        running = {} if current is None else running_rates(spec, current.value.spec, statuses)
        return await self._questions.ask(
            f"{_MODULE}:answer", spec, list(at_rate), keys, {}, cores, running
        )


def running_rates(
    spec: AppSpec, runs: AppSpec, statuses: Iterable[InstanceStatus]
) -> Mapping[str, float]:
    """By group, events a second of one busy instance, of groups that the running app has too.

    Args:
        spec: the app in question.
        runs: the plan of the running app of its name.
        statuses: reports of all instances.
    """
    texts = {g.name: g.text for g in spec.groups}
    of = {
        instance: group.name
        for group in runs.groups
        if texts.get(group.name) == group.text
        for instance in group.instances
    }
    events: Counter[str] = Counter()
    batches: Counter[str] = Counter()
    took_s: defaultdict[str, float] = defaultdict(float)
    for status in statuses:
        name = of.get(status.instance)
        if status.app == runs.name and name is not None:
            events[name] += status.events_in
            batches[name] += sum(status.batches)
            took_s[name] += status.batches_sum_s
    return {
        name: count / took_s[name]
        for name, count in events.items()
        if took_s[name] > 0 and count >= BATCH_MIN * max(1, batches[name])
    }
