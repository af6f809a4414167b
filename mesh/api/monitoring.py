"""Handlers that show the cluster: nodes, placement, statistics, metrics."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from mesh.api.metrics import CONTENT_TYPE, ClusterValues, ManagerValues, exposition, statistics
from mesh.api.responses import Json, values_of, visible_apps, with_status
from mesh.api.routing import serves
from mesh.model.foreign_operations import OriginalOperations
from mesh.model.operation import parameter_error
from mesh.model.operations import AppOperations, ClusterOperations

if TYPE_CHECKING:
    from starlette.requests import Request

    from mesh.manager.service import ManagerService
    from mesh.model.values import JsonObject

#: Presence of a worker in the words of the system before this one.
_NODE_STATES: Final = {"alive": "ACTIVE", "suspect": "ACTIVE", "gone": "INACTIVE"}
_OF_WORKER: Final = ("id", "address", "pid", "presence", "ready", "labels")
#: Media types of pictures of a plan.
_PICTURES: Final = {"svg": "image/svg+xml", "dot": "text/vnd.graphviz"}


class Monitoring:
    """Handlers of monitoring."""

    def __init__(self, service: ManagerService) -> None:
        self._service = service

    @serves(AppOperations.statistics)
    async def statistics(self, request: Request) -> object:
        apps = [with_status(app) for app in await visible_apps(self._service)]
        return statistics(apps, self._service.now_ms())

    @serves(AppOperations.elements)
    async def elements(self, request: Request, app: str) -> object:
        return await self._service.plan_view(app, "elements")

    @serves(AppOperations.groups)
    async def groups(self, request: Request, app: str, output: str) -> object:
        view = await self._service.plan_view(app, output)
        kind = _PICTURES.get(output)
        return view if kind is None else Response(view, media_type=kind)

    @serves(ClusterOperations.nodes)
    async def nodes(self, request: Request) -> object:
        return await self._service.nodes()

    @serves(OriginalOperations.managers)
    async def managers(self, request: Request) -> object:
        nodes = values_of(await self._service.nodes())
        return [
            {**n, "haStatus": "Active" if n.get("leads") else "Passive", "groupId": "mesh"}
            for n in nodes
            if n["role"] == "manager"
        ]

    @serves(OriginalOperations.is_active)
    async def is_active(self, request: Request) -> object:
        leadership = await self._service.leadership()
        values = {
            "isActive": leadership.leads,
            "manager": leadership.manager,
            "leader": leadership.leader,
        }
        return Json(values, HTTPStatus.OK if leadership.leads else HTTPStatus.NOT_FOUND)

    @serves(OriginalOperations.parents)
    async def parents(self, request: Request) -> object:
        nodes = await self._by_name()
        return [
            {**_parent(app), "children": _children(app, nodes, self._service.now_ms())}
            for app in values_of(await visible_apps(self._service))
        ]

    @serves(OriginalOperations.children)
    async def children(self, request: Request, app: str) -> object:
        status = values_of(await self._service.status(app))
        texts = {group.name: group.text for group in (await self._service.app(app)).groups}
        children = _children(status, await self._by_name(), self._service.now_ms())
        return [{**one, "siddhiApp": texts.get(one["group"], "")} for one in children]

    @serves(OriginalOperations.execution)
    async def execution(self, request: Request, app: str) -> object:
        spec = await self._service.app(app)
        if "text/plain" in request.headers.get("accept", ""):
            return Response(spec.text, media_type="text/plain")
        return {"content": spec.text}

    @serves(OriginalOperations.workers_count)
    async def workers_count(self, request: Request, details: bool) -> object:
        workers = await self._workers()
        if not details:
            return len(workers)
        ready = sum(bool(node.get("ready")) for node in workers)
        return {"clusteredWorkers": len(workers), "ready": ready}

    @serves(OriginalOperations.workers)
    async def workers(self, request: Request) -> object:
        return [
            {
                "nodeId": n["id"],
                # No worker has an API.
                "https_host": "",
                "https_port": "",
                **{key: n.get(key) for key in _OF_WORKER},
            }
            for n in await self._workers()
        ]

    @serves(ClusterOperations.overview)
    async def overview(self, request: Request) -> object:
        values = values_of(await self._service.overview())
        return {**values, "flows": await self._service.flows()}

    @serves(ClusterOperations.history)
    async def history(
        self,
        request: Request,
        app: str | None,
        group: str | None,
        node: str | None,
        seconds: float,
        step: float,
    ) -> Any:
        kind, name = _history_key(app, group, node)
        return await self._service.telemetry.past(
            kind, name, max(1, int(seconds)), max(1, int(step))
        )

    @serves(ClusterOperations.metrics)
    async def metrics(self, request: Request) -> object:
        leadership = await self._service.leadership()
        manager = ManagerValues(leadership.manager, leadership.leads, self._service.telemetry.bytes)
        cluster = None
        if leadership.leads:
            apps = values_of(await visible_apps(self._service))
            nodes = values_of(await self._service.nodes())
            cluster = ClusterValues(apps, nodes, **await self._service.cluster_figures())
        return Response(exposition(manager, cluster), media_type=CONTENT_TYPE)

    async def _by_name(self) -> dict[str, JsonObject]:
        return {node["id"]: node for node in values_of(await self._service.nodes())}

    async def _workers(self) -> list[JsonObject]:
        nodes = values_of(await self._service.nodes())
        return [n for n in nodes if n["role"] == "worker" and n["presence"] != "gone"]


def _history_key(app: str | None, group: str | None, node: str | None) -> tuple[str, str]:
    """Kind and name in a history: of ``app`` and ``group``, or of ``node``."""
    if app:
        return ("group", f"{app}/{group}") if group else ("app", app)
    if node:
        return "node", node if "/" in node else f"worker/{node}"
    raise parameter_error("app", "", "the name of an app; or node that of a node")


def _parent(app: JsonObject) -> JsonObject:
    groups: dict[str, JsonObject] = {}
    for one in app["instances"]:
        group = groups.setdefault(
            one["group"], {"group": one["group"], "instances": 0, "running": 0}
        )
        group["instances"] += 1
        group["running"] += one["state"] == "running"
    return {
        "app": app["app"],
        "state": app["state"],
        "reason": app["reason"],
        "groups": list(groups.values()),
    }


def _children(app: JsonObject, nodes: dict[str, JsonObject], now_ms: int) -> list[JsonObject]:
    return [{"parentAppName": app["app"], **_child(one, nodes, now_ms)} for one in app["instances"]]


def _child(one: JsonObject, nodes: dict[str, JsonObject], now_ms: int) -> JsonObject:
    worker = nodes.get(one["worker"] or "")
    presence = worker["presence"] if worker is not None else None
    return {
        "groupName": one["group"],
        "childAppName": one["instance"],
        "deployedNodeId": one["worker"],
        "deployedNodeHost": "",
        "deployedNodePort": "",
        "deployedNodeState": _NODE_STATES.get(presence or "", "NEW"),
        "lastPingTimeStamp": (
            now_ms - round(worker["last_heartbeat_ago_s"] * 1000) if worker is not None else None
        ),
        "failedPingAttempts": int(presence != "alive"),
        "instance": one["instance"],
        "group": one["group"],
        "state": one["state"],
        "worker": one["worker"],
        "worker_presence": presence,
        "last_heartbeat_ago_s": worker.get("last_heartbeat_ago_s") if worker is not None else None,
        "error": one.get("error"),
        "reason": one.get("reason"),
    }
