"""The form that makes a fork of an app."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.dashboard.guard import fields_of, require, session_of
from mesh.dashboard.responses import PageView
from mesh.dashboard.source import NO_ERRORS, TextErrors, form_errors
from mesh.errors import MeshError
from mesh.model import names
from mesh.model.access import Permission

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from mesh.dashboard.board import Board
    from mesh.dashboard.responses import PageFrame
    from mesh.model.values import JsonObject


async def show(board: Board, request: Request) -> PageView:
    """The form."""
    return await _view(board, request.path_params["app"], {})


async def act(frame: PageFrame, request: Request) -> Response:
    """Make the fork."""
    form = await fields_of(request)
    app, by = request.path_params["app"], session_of(request).user
    form["text"] = form.get("text", "").replace("\r\n", "\n")
    text = form["text"].strip()
    try:
        other = names.app_token(form.get("other", "").strip())
        if not names.is_app_name(other):
            raise MeshError("MESH-A400", "the fork needs a name", hint=f"For example {app}Next.")
        require(request, Permission.APPS_MANAGE, other)
        done = await frame.board.service.forks.fork(
            app,
            other,
            text=f"{text}\n" if text else None,
            begin=form.get("begin", "").strip() or "start",
            until=form.get("until", "").strip() or None,
            sinks="sinks" in form,
            by=by,
        )
    except MeshError as error:
        wrong = form_errors(form["text"], error)
        return frame.shown(request, await _view(frame.board, app, form, wrong))
    return frame.done(f"/apps/{done.app}?done=forked")


async def _view(
    board: Board, app: str, fields: dict[str, str], wrong: TextErrors = NO_ERRORS
) -> PageView:
    seen = await board.see()
    seen.app(app)
    backups = [one.revision for one in reversed(await board.service.backups.list_all(app))]
    values: JsonObject = {"app": app, "given": fields, "backups": backups, "wrong": wrong}
    return PageView("fork.html", values, 400 if wrong.errors else 200)
