"""``mesh check`` in a cluster: workers open the sources, sinks and stores that they would use."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from nats.errors import Error as NatsError

from mesh.connect.spec import Role
from mesh.language.parser import parse
from mesh.language.syntax import AggregationDefinition, TableDefinition
from mesh.model import names
from mesh.model.cluster import InstanceState
from mesh.model.cluster import NodeRole as NodeRole
from mesh.plan.bind import bind
from mesh.plan.connectors import connector_of
from mesh.plan.outside_calls import as_planned
from mesh.plan.stores import stored_definitions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nats.aio.client import Client

    from mesh.control.snapshot import ClusterSnapshot
    from mesh.model.app import AppSpec, GroupSpec
    from mesh.model.cluster import NodeRecord
    from mesh.model.values import JsonObject
    from mesh.plan.bound import BoundApp
    from mesh.plan.connectors import Connector

#: In the problem of an address that can't be bound.
_IN_USE: Final = "[MESH-C133]"
#: Time for an answer: several checks may wait on one worker.
_ANSWER_S: Final = 200.0


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """A source, sink or store of the app, and the worker that is to open it; empty for none."""

    number: int
    stream: str
    name: str
    worker: str


def check_requests(spec: AppSpec, snapshot: ClusterSnapshot) -> list[CheckRequest]:
    """The sources, sinks and stores of an app, each with the worker that uses it, or would."""
    app = spec.name
    placed = {a.value.instance: a.value.worker for a in snapshot.assignments if not a.value.stop}
    nodes = [n.value for n in snapshot.nodes if n.value.role is NodeRole.WORKER]
    bound = bind(as_planned(parse(spec.text)))
    requests = [
        CheckRequest(
            number,
            stream,
            connector.kind,
            placed.get(names.instance_name(app, group, 1)) or _able(nodes, connector),
        )
        for number, (stream, connector, group) in enumerate(_connectors(bound))
    ]
    ready = min((node.id for node in nodes if node.ready), default="")
    at = {
        table: worker
        for group in reversed(spec.groups)
        if (worker := placed.get(names.instance_name(app, group.name, 1)))
        for table in _tables(group)
    }
    return requests + [
        CheckRequest(number, name, f"store {options.kind}", at.get(name, ready))
        for number, (name, options) in enumerate(stored_definitions(bound), len(requests))
    ]


def _tables(group: GroupSpec) -> Iterator[str]:
    """Names of the tables and aggregations of a group, with a store or without."""
    for one in parse(group.text).definitions:
        if isinstance(one, TableDefinition | AggregationDefinition):
            yield one.name


def _connectors(app: BoundApp) -> Iterator[tuple[str, Connector, str]]:
    """Stream, source or sink, and the name of its group, in the order written."""
    counts: dict[tuple[str, Role], int] = defaultdict(int)
    for stream, annotation in app.stream_annotations:
        if annotation.name.lower() not in ("source", "sink"):
            continue
        connector = connector_of(annotation)
        counts[stream, connector.role] += 1
        number = counts[stream, connector.role]
        kind = "receiver" if connector.role is Role.SOURCE else "sink"
        yield stream, connector, f"{kind}-{stream}" + (f"-{number}" if number > 1 else "")


def _able(nodes: list[NodeRecord], connector: Connector) -> str:
    """A worker that has the connector, and takes sources for a source; empty for none."""
    able = [
        node.id
        for node in nodes
        if node.ready
        and connector.kind in node.connectors
        and (connector.role is Role.SINK or node.takes_receivers)
    ]
    return min(able, default="")


async def check(client: Client, spec: AppSpec, snapshot: ClusterSnapshot) -> list[JsonObject]:
    """Have the workers open the sources, sinks and stores of an app, with what its author may read.

    Returns:
        Results in the order written, with ``worker`` and else as a
        ``mesh.receiver.checking.ConnectorCheck``.
    """
    requests = check_requests(spec, snapshot)
    by_worker: dict[str, list[CheckRequest]] = defaultdict(list)
    for one in requests:
        by_worker[one.worker].append(one)
    is_any_ready = any(n.value.ready for n in snapshot.nodes if n.value.role is NodeRole.WORKER)
    none = "no worker that is ready has it" if is_any_ready else "no worker is ready"
    answers = await asyncio.gather(
        *(_ask(client, worker, spec, some, none) for worker, some in by_worker.items())
    )
    results = [one for some in answers for one in some]
    served = addresses_of(spec.name, snapshot)
    for result in results:
        # Its own address is taken because it is open already.
        if _IN_USE in result["problem"] and (result["worker"], result["endpoint"]) in served:
            result["problem"] = ""
    return sorted(results, key=lambda one: int(one["number"]))


def addresses_of(app: str, snapshot: ClusterSnapshot) -> set[tuple[str, str]]:
    """Worker and address of each source and sink of an app that is open."""
    statuses = (entry.value for entry in snapshot.statuses if entry.value.app == app)
    return {
        (status.worker, connector.endpoint)
        for status in statuses
        for connector in status.connectors
        if connector.state is InstanceState.RUNNING and connector.endpoint
    }


async def _ask(
    client: Client, worker: str, spec: AppSpec, some: list[CheckRequest], none: str
) -> list[JsonObject]:
    said: Any = {"problem": none}
    if worker:
        reads = [stream for group in spec.groups for stream in group.reads or ()]
        question = {"text": spec.text, "only": [one.number for one in some], "reads": reads}
        try:
            answer = await client.request(
                names.check_subject(worker), orjson.dumps(question), timeout=_ANSWER_S
            )
            said = orjson.loads(answer.data)
        except (NatsError, TimeoutError, OSError) as error:
            reason = str(error) or type(error).__name__
            said = {"problem": f"worker {worker} does not answer: {reason}"}
    if isinstance(said, list):
        return [{"worker": worker, **one} for one in said]
    return [
        {"worker": worker, "number": one.number, "stream": one.stream, "name": one.name,
         "endpoint": "", "problem": said["problem"], "sample": [], "refused": []}
        for one in some
    ]  # fmt: skip
