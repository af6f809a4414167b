"""The console of on-demand queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from mesh.dashboard.guard import form_of, identity_of, require
from mesh.dashboard.rendering import View
from mesh.errors import MeshError
from mesh.model import names
from mesh.model.access import Permission

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from mesh.dashboard.board import Board
    from mesh.dashboard.responses import Frame

#: Rows of an answer on the page.
ROWS: Final = 500
#: Kinds of elements that can be asked.
_STORED: Final = ("table", "window", "aggregation")


async def show(board: Board, request: Request) -> View:
    """The form."""
    seen = await board.see()
    app = request.query_params.get("app", "")
    values = {"app": app, "text": request.query_params.get("text", ""), "partial": False}
    return View("query.html", {"seen": seen, **values, **await _around(board, app)})


async def ask(frame: Frame, request: Request) -> Response:
    """The answer, below the form."""
    form = await form_of(request)
    board = frame.board
    app, text = form.get("app", [""])[0], form.get("text", [""])[0]
    partial = bool(form.get("partial"))
    values: dict[str, Any] = {"app": app, "text": text, "partial": partial}
    values |= {"seen": await board.see(), **await _around(board, app)}
    try:
        if not names.is_app_name(app):
            raise MeshError("MESH-A400", "choose an app")
        require(request, Permission.DATA_READ, app)
        may_change = identity_of(request).may(Permission.DATA_WRITE, app)
        answer = await board.service.queries.ask(app, text, partial=partial, may_change=may_change)
    except MeshError as error:
        return frame.shown(request, View("query.html", {**values, "error": error}, 400))
    rows = orjson.loads(answer.records)
    found = {"columns": answer.columns, "rows": rows[:ROWS], "count": len(rows)}
    found |= {"positions": answer.positions, "missing": answer.missing}
    return frame.shown(request, View("query.html", {**values, "answer": found}))


async def _around(board: Board, app: str) -> dict[str, Any]:
    """Tables, windows and aggregations of the chosen app."""
    around: dict[str, Any] = {"stored": [], "error": None, "answer": None}
    if app in (await board.see()).apps:
        found = await board.service.plan_view(app, "elements")
        around["stored"] = [e for e in found["elements"] if e["type"] in _STORED]
    return around
