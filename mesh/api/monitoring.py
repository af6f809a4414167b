"""Routes that show the cluster: nodes, placement, statistics.

GET /siddhi-apps/statistics                     a row for each app
GET /siddhi-apps/{app}/elements                 its parts, and the flow of events between them
GET /siddhi-apps/{app}/plan                     its groups; ?output=svg and dot draw it
GET /managers                                   the managers, and which one leads
GET /managers/isActive                          whether this one leads; 404 if not
GET /managers/siddhi-apps                       apps with their groups
GET /managers/siddhi-apps/{app}                 its instances: group, state, worker, heartbeat
GET /managers/siddhi-apps-execution/{app}       its text
GET /resourceClusterWorkers                     the number of workers
GET /resourceClusterWorkers/clusteredWorkerNodeDetails   which
GET /nodes                                      managers and workers
GET /metrics                                    Prometheus
GET /overview                                   all in a row each, the worst first, with rates
GET /history                                    ?app=A&group=g or ?node=w1: the last hour
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from mesh.api.metrics import CONTENT_TYPE, ClusterValues, Own, exposition, statistics
from mesh.api.paths import route
from mesh.api.responses import Json, number, parameter, values_of, with_status

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from mesh.manager.service import ManagerService

#: Longest time of a history, seconds.
HISTORY_S_MAX: Final = 31 * 86_400
#: Presence of a worker in the words of the system before this one.
_NODE_STATES: Final = {"alive": "ACTIVE", "suspect": "ACTIVE", "gone": "INACTIVE"}
_OF_WORKER: Final = ("id", "address", "pid", "presence", "ready", "labels")
#: Forms of a plan, and the media types of pictures.
PLAN_FORMS: Final = {"json": None, "svg": "image/svg+xml", "dot": "text/vnd.graphviz"}


class Monitoring:
    """Routes of monitoring, one method each."""

    def __init__(self, service: ManagerService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        """The routes; they must precede those with ``{app}``."""
        found = {
            "/siddhi-apps/statistics": self.statistics,
            "/siddhi-apps/{app}/elements": self.elements,
            "/siddhi-apps/{app}/plan": self.plan,
            "/managers": self.managers,
            "/managers/isActive": self.is_active,
            "/managers/siddhi-apps": self.parents,
            "/managers/siddhi-apps/{app}": self.children,
            "/managers/siddhi-apps-execution/{app}": self.execution,
            "/resourceClusterWorkers": self.workers_count,
            "/resourceClusterWorkers/clusteredWorkerNodeDetails": self.workers,
            "/nodes": self.nodes,
            "/metrics": self.metrics,
            "/overview": self.overview,
            "/history": self.history,
        }
        return [route(path, method, "GET") for path, method in found.items()]

    async def statistics(self, request: Request) -> Response:
        """Statistics of each app since its instances were placed."""
        apps = [with_status(app) for app in await self._service.apps()]
        return Json(statistics(apps, self._service.now_ms()))

    async def elements(self, request: Request) -> Response:
        """An app's definitions and queries, and the edges between them."""
        return Json(await self._service.plan_view(request.path_params["app"], "elements"))

    async def plan(self, request: Request) -> Response:
        """The division of an app into groups, as values or as a picture."""
        form = request.query_params.get("output", "json")
        if form not in PLAN_FORMS:
            raise parameter("output", form, "json, svg or dot")
        made = await self._service.plan_view(request.path_params["app"], form)
        kind = PLAN_FORMS[form]
        return Json(made) if kind is None else Response(made, media_type=kind)

    async def nodes(self, request: Request) -> Response:
        """All nodes."""
        return Json(await self._service.nodes())

    async def managers(self, request: Request) -> Response:
        """The managers, with the leader."""
        nodes = values_of(await self._service.nodes())
        return Json(
            [
                {**n, "haStatus": "Active" if n.get("leads") else "Passive", "groupId": "mesh"}
                for n in nodes
                if n["role"] == "manager"
            ]
        )

    async def is_active(self, request: Request) -> Response:
        """Whether the manager that answers leads; 404 if not, for load balancers."""
        found = await self._service.leadership()
        values = {"isActive": found.leads, "manager": found.manager, "leader": found.leader}
        return Json(values, HTTPStatus.OK if found.leads else HTTPStatus.NOT_FOUND)

    async def parents(self, request: Request) -> Response:
        """Apps with their groups, and how many instances of each run."""
        nodes = await self._by_name()
        return Json(
            [
                {**_parent(app), "children": _children(app, nodes, self._service.now_ms())}
                for app in values_of(await self._service.apps())
            ]
        )

    async def children(self, request: Request) -> Response:
        """One app's instances, with the worker of each and the age of its heartbeat."""
        app = values_of(await self._service.status(request.path_params["app"]))
        texts = {
            group.name: group.text
            for group in (await self._service.app(request.path_params["app"])).groups
        }
        children = _children(app, await self._by_name(), self._service.now_ms())
        return Json([{**one, "siddhiApp": texts.get(one["group"], "")} for one in children])

    async def execution(self, request: Request) -> Response:
        """One app's text."""
        spec = await self._service.app(request.path_params["app"])
        if "text/plain" in request.headers.get("accept", ""):
            return Response(spec.text, media_type="text/plain")
        return Json({"content": spec.text})

    async def workers_count(self, request: Request) -> Response:
        """Number of workers, and of those that are ready."""
        found = await self._workers()
        if request.query_params.get("details") != "true":
            return Json(len(found))
        ready = sum(bool(node.get("ready")) for node in found)
        return Json({"clusteredWorkers": len(found), "ready": ready})

    async def workers(self, request: Request) -> Response:
        """The workers by name, with the machine of each."""
        return Json(
            [
                {
                    "nodeId": n["id"],
                    # No worker has an API.
                    "https_host": "",
                    "https_port": "",
                    **{key: n.get(key) for key in _OF_WORKER},
                }
                for n in await self._workers()
            ]
        )

    async def overview(self, request: Request) -> Response:
        """Problems, apps and nodes, the worst first, with the present rates of apps."""
        found = values_of(await self._service.overview())
        return Json({**found, "flows": await self._service.flows()})

    async def history(self, request: Request) -> Response:
        """The history of an app, a group or a node."""
        kind, name = _history_key(request)
        seconds = max(1, int(number(request, "seconds", 3600, HISTORY_S_MAX)))
        step_s = max(1, int(number(request, "step", 1, HISTORY_S_MAX)))
        return Json(await self._service.history(kind, name, seconds, step_s))

    async def metrics(self, request: Request) -> Response:
        """This manager's metrics, and the cluster's if it leads, in Prometheus' text format."""
        found = await self._service.leadership()
        own = Own(found.manager, found.leads, self._service.history_bytes())
        cluster = None
        if found.leads:
            apps = values_of(await self._service.apps())
            nodes = values_of(await self._service.nodes())
            cluster = ClusterValues(apps, nodes, **await self._service.cluster_figures())
        return Response(exposition(own, cluster), media_type=CONTENT_TYPE)

    async def _by_name(self) -> dict[str, dict[str, Any]]:
        return {node["id"]: node for node in values_of(await self._service.nodes())}

    async def _workers(self) -> list[dict[str, Any]]:
        nodes = values_of(await self._service.nodes())
        return [n for n in nodes if n["role"] == "worker" and n["presence"] != "gone"]


def _history_key(request: Request) -> tuple[str, str]:
    """Kind and name in a history: of parameters ``app`` and ``group``, or of ``node``."""
    app, group, node = (request.query_params.get(name) for name in ("app", "group", "node"))
    if app:
        return ("group", f"{app}/{group}") if group else ("app", app)
    if node:
        return "node", node if "/" in node else f"worker/{node}"
    raise parameter("app", "", "the name of an app; or node that of a node")


def _parent(app: dict[str, Any]) -> dict[str, Any]:
    groups: dict[str, dict[str, Any]] = {}
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


def _children(
    app: dict[str, Any], nodes: dict[str, dict[str, Any]], now_ms: int
) -> list[dict[str, Any]]:
    return [{"parentAppName": app["app"], **_child(one, nodes, now_ms)} for one in app["instances"]]


def _child(one: dict[str, Any], nodes: dict[str, dict[str, Any]], now_ms: int) -> dict[str, Any]:
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
            now_ms - round(worker["heard_ago_s"] * 1000) if worker is not None else None
        ),
        "failedPingAttempts": int(presence != "alive"),
        "instance": one["instance"],
        "group": one["group"],
        "state": one["state"],
        "worker": one["worker"],
        "worker_presence": presence,
        "last_heartbeat_ago_s": worker.get("heard_ago_s") if worker is not None else None,
        "error": one.get("error"),
        "reason": one.get("reason"),
    }
