"""The first page: problems, then the numbers of the cluster, its apps and its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.dashboard.charts import APPS_MAX, SPANS, chart_time, charts_of, charts_of_apps
from mesh.dashboard.first_apps import FIRST_APPS
from mesh.dashboard.graph import worst_groups
from mesh.dashboard.guard import identity_of
from mesh.dashboard.responses import PageView, paged
from mesh.manager.rates import total
from mesh.model.access import Permission

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams
    from starlette.requests import Request

    from mesh.dashboard.board import Board, Seen
    from mesh.manager.overview import AppSummary
    from mesh.model.values import JsonObject

#: Rows of apps and of nodes on one page.
ROWS: Final = 50
NODES: Final = 12
PROBLEMS: Final = 8
GROUPS: Final = 8


async def show(board: Board, request: Request) -> PageView:
    """The overview."""
    seen = await board.see()
    sees_nodes = identity_of(request).may(Permission.MONITOR, None)
    window = chart_time(request.query_params, seen.at_ms // 1000)
    sees_all = identity_of(request).may(Permission.APPS_VIEW, None)
    # Of very many apps the worst: each has a history of its own.
    charted = [app.app for app in seen.overview.apps[:APPS_MAX]]
    charts = (
        await charts_of(board, "cluster", "all", window)
        if sees_all
        else await charts_of_apps(board, charted, window)
    )
    return PageView(
        "overview.html",
        {
            **values(seen, request.query_params, sees_nodes),
            "window": window,
            "spans": SPANS,
            "charts": charts,
            "charted": len(seen.apps) if sees_all else len(charted),
            "groups": worst_groups(seen, GROUPS),
            "first_apps": FIRST_APPS,
        },
    )


def values(seen: Seen, query: QueryParams, may_see_nodes: bool) -> JsonObject:
    """The values of the page.

    Args:
        seen: the cluster.
        query: the filter ``q`` by name, ``state``, and ``page`` from 1.
        may_see_nodes: whether the reader may see nodes.
    """
    whole = seen.overview
    chosen = [app for app in whole.apps if _fits(app, query)]
    shown, footer = paged(chosen, query, ROWS)
    problems = [p for p in whole.problems if may_see_nodes or p.concern in ("app", "errors")]
    return {
        "seen": seen,
        "whole": whole,
        "problems": problems[:PROBLEMS],
        "more_problems": max(0, len(problems) - PROBLEMS),
        "apps": [(app, seen.flow_of(app.app)) for app in shown],
        **footer,
        "states": sorted({str(app.state) for app in whole.apps}),
        "nodes": whole.nodes[:NODES] if may_see_nodes else (),
        "more_nodes": max(0, len(whole.nodes) - NODES) if may_see_nodes else 0,
        "flow": total(seen.flows.values()),
        "behind": sum(app.behind for app in whole.apps),
        "errors": sum(app.failed for app in whole.apps),
    }


def _fits(app: AppSummary, query: QueryParams) -> bool:
    state = query.get("state", "")
    return query.get("q", "").lower() in app.app.lower() and state in ("", app.state)
