"""Managers and workers: presence, admission and load; cordon and drain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.dashboard.charts import SPANS, chart_time, charts_of
from mesh.dashboard.guard import form_of, session_of
from mesh.dashboard.responses import PageView, paged
from mesh.errors import MeshError
from mesh.manager.rates import total
from mesh.model.cluster import InstanceState

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from mesh.dashboard.board import Board
    from mesh.dashboard.responses import PageFrame

ROWS: Final = 100
_ORDERS: Final = {"cordon": "cordoned", "uncordon": "open", "drain": "draining"}


async def show(board: Board, request: Request) -> PageView:
    """All nodes, those that are not alive first."""
    seen = await board.see()
    q, role = request.query_params.get("q", ""), request.query_params.get("role", "")
    chosen = [n for n in seen.overview.nodes if q.lower() in n.id.lower() and role in ("", n.role)]
    shown, values = paged(chosen, request.query_params, ROWS)
    return PageView("nodes.html", {"seen": seen, "nodes": shown, **values})


async def one(board: Board, request: Request) -> PageView:
    """One node with its instances."""
    seen = await board.see()
    name = request.path_params["node"]
    nodes = [node for node in seen.nodes if node.id == name]
    if not nodes:
        raise MeshError("MESH-A404", f'node "{name}" is not there')
    instances = [
        (app.app, i, seen.flow(i.instance))
        for app in seen.apps.values()
        for i in app.instances
        if i.worker == name
    ]
    instances.sort(key=lambda one: (one[1].state == InstanceState.RUNNING, -one[2].backlog_s))
    window = chart_time(request.query_params, seen.at_ms // 1000)
    charts = await charts_of(board, "node", f"{nodes[0].role}/{name}", window)
    values = {
        "seen": seen,
        "nodes": nodes,
        "instances": instances,
        "restarts": sum(i.restarts for _, i, _ in instances),
        "flow": total(flow for _, _, flow in instances),
    }
    return PageView("node.html", {**values, "charts": charts, "window": window, "spans": SPANS})


async def act(frame: PageFrame, request: Request) -> Response:
    """Cordon, uncordon or drain a worker."""
    form = await form_of(request)
    order = form.get("do", [""])[0]
    if order not in _ORDERS:
        raise MeshError("MESH-A400", "the form asks for nothing that is known")
    name = request.path_params["node"]
    await frame.board.service.order_node(name, _ORDERS[order], by=session_of(request).user)
    return frame.done(f"/nodes/{name}")
