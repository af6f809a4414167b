"""The console of on-demand queries: an answer, or one that is renewed while the page is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import orjson
from starlette.responses import RedirectResponse

from mesh.dashboard.guard import form_of, identity_of, require
from mesh.dashboard.responses import PageView
from mesh.dashboard.source import NO_ERRORS, errors_in
from mesh.errors import MeshError
from mesh.model import names
from mesh.model.access import Permission

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from mesh.dashboard.board import Board
    from mesh.dashboard.responses import PageFrame
    from mesh.model.values import JsonObject

#: Rows of an answer on the page.
ROWS: Final = 500
#: Characters of a query in a URL.
TEXT_MAX: Final = 4000
#: Seconds after which an open page may ask again.
EVERY: Final = ("2", "5", "15", "60")
#: Kinds of elements that can be asked.
_STORED: Final = ("table", "window", "aggregation")


async def show(board: Board, request: Request) -> PageView:
    """The form; with ``every`` in the URL also the answer, which an open page renews."""
    query = request.query_params
    app, text = query.get("app", ""), query.get("text", "")[:TEXT_MAX]
    every = query.get("every", "")
    values: JsonObject = {"app": app, "text": text, "partial": query.get("partial") == "1"}
    values |= {"seen": await board.see(), "every": every if every in EVERY else ""}
    if app:
        require(request, Permission.DATA_READ, app)
    values |= await _around(board, app)
    if values["every"] and text:
        values |= await _renewed(board, app, text, values["partial"], int(every))
    return PageView("query.html", values)


async def _renewed(board: Board, app: str, text: str, partial: bool, every_s: int) -> JsonObject:
    """The answer as of some seconds ago at most, for all who have such a page open."""

    async def ask_once() -> JsonObject:
        # A page that renews itself changes nothing.
        return {**await _answer(board, app, text, partial), "at_ms": board.clock.wall_ms()}

    key = "query", app, text, partial
    answer: JsonObject = await board.cached(key, every_s - 0.5, ask_once)
    return answer


async def ask(frame: PageFrame, request: Request) -> Response:
    """The answer, below the form."""
    form = await form_of(request)
    board = frame.board
    app, text = form.get("app", [""])[0], form.get("text", [""])[0]
    partial, every = bool(form.get("partial")), form.get("every", [""])[0]
    if names.is_app_name(app):
        require(request, Permission.DATA_READ, app)
        if every in EVERY and len(text) <= TEXT_MAX:
            parameters = {"app": app, "text": text, "every": every, "partial": int(partial)}
            return RedirectResponse(f"/query?{urlencode(parameters)}", 303)
    values: JsonObject = {"app": app, "text": text, "partial": partial, "every": ""}
    values |= {"seen": await board.see(), **await _around(board, app)}
    may_change = identity_of(request).may(Permission.DATA_WRITE, app)
    answer = await _answer(board, app, text, partial, may_change=may_change)
    status = 400 if answer["wrong"].errors else 200
    return frame.shown(request, PageView("query.html", {**values, **answer}, status))


async def _answer(
    board: Board, app: str, text: str, partial: bool, *, may_change: bool = False
) -> JsonObject:
    """The answer, or the error with its place in the text."""
    try:
        if not names.is_app_name(app):
            raise MeshError("MESH-A400", "choose an app")
        answer = await board.service.queries.ask(app, text, partial=partial, may_change=may_change)
    except MeshError as error:
        return {"wrong": errors_in(text, error)}
    rows = orjson.loads(answer.records)
    table = {"columns": answer.columns, "rows": rows[:ROWS], "count": len(rows)}
    table |= {"missing": answer.missing, "changed": answer.changed}
    return {"wrong": NO_ERRORS, "answer": table}


async def _around(board: Board, app: str) -> JsonObject:
    """Tables, windows and aggregations of the chosen app."""
    around: JsonObject = {"stored": [], "wrong": NO_ERRORS, "answer": None, "at_ms": 0}
    around["choices"] = EVERY
    if app in (await board.see()).apps:
        view = await board.service.plan_view(app, "elements")
        around["stored"] = [e for e in view["elements"] if e["type"] in _STORED]
    return around
