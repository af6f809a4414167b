"""The first page: problems, then the numbers of the cluster, its apps and its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mesh.dashboard.rates import Rate
from mesh.dashboard.rendering import View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.datastructures import QueryParams
    from starlette.requests import Request

    from mesh.dashboard.board import Board, Seen
    from mesh.manager.overview import AppSummary

#: Rows of apps and of nodes on one page.
ROWS: Final = 50
NODES: Final = 12
PROBLEMS: Final = 8


async def show(board: Board, request: Request) -> View:
    """The overview."""
    seen = await board.see()
    return View("overview.html", values(seen, request.query_params, request.scope["mesh.may"]))


def values(seen: Seen, query: QueryParams, may: Sequence[str]) -> dict[str, Any]:
    """The values of the page.

    Args:
        seen: the cluster.
        query: the filter ``q`` by name, ``state``, and ``page`` from 1.
        may: permissions of the reader.
    """
    whole = seen.overview
    chosen = [app for app in whole.apps if _fits(app, query)]
    pages = max(1, -(-len(chosen) // ROWS))
    page = min(_page(query), pages)
    shown = chosen[(page - 1) * ROWS : page * ROWS]
    may_see_nodes = "monitor" in may
    problems = [p for p in whole.problems if may_see_nodes or p.concern in ("app", "errors")]
    rates = list(seen.rates.values())
    return {
        "seen": seen,
        "whole": whole,
        "problems": problems[:PROBLEMS],
        "more_problems": max(0, len(problems) - PROBLEMS),
        "apps": [(app, seen.rates.get(app.app, Rate())) for app in shown],
        "count": len(chosen),
        "page_number": page,
        "page_count": pages,
        "states": sorted({str(app.state) for app in whole.apps}),
        "nodes": whole.nodes[:NODES] if may_see_nodes else (),
        "more_nodes": max(0, len(whole.nodes) - NODES) if may_see_nodes else 0,
        "taken": _sum([rate.taken for rate in rates]),
        "emitted": _sum([rate.emitted for rate in rates]),
        "behind": sum(app.behind for app in whole.apps),
        "lag_s": max(
            (lag for app in whole.apps if (lag := lag_of(seen, app)) is not None), default=None
        ),
        "errors": sum(app.errors for app in whole.apps),
    }


def lag_of(seen: Seen, app: AppSummary) -> float | None:
    """Seconds until an app has taken its backlog; None if that is not known."""
    return seen.rates.get(app.app, Rate()).lag_s(app.behind)


def _fits(app: AppSummary, query: QueryParams) -> bool:
    state = query.get("state", "")
    return query.get("q", "").lower() in app.app.lower() and state in ("", app.state)


def _page(query: QueryParams) -> int:
    given = query.get("page", "1")
    return max(1, int(given)) if given.isascii() and given.isdigit() and len(given) < 6 else 1


def _sum(rates: Sequence[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None
