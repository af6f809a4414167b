"""The form that deploys an app with the states of its past."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.dashboard.guard import fields_of, identity_of, require, session_of
from mesh.dashboard.responses import PageView
from mesh.dashboard.source import NO_ERRORS, form_errors
from mesh.errors import MeshError
from mesh.model.access import Permission
from mesh.model.history import HistoryInput
from mesh.plan.history_addresses import is_stream

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from mesh.dashboard.board import Board
    from mesh.dashboard.responses import PageFrame


async def show(board: Board, request: Request) -> PageView:
    """The form."""
    return PageView("backfill.html", {"given": {}, "wrong": NO_ERRORS})


async def act(frame: PageFrame, request: Request) -> Response:
    """Run the past events, and deploy the app with their states."""
    form = {name: value.strip() for name, value in (await fields_of(request)).items()}
    text = form.get("text", "").replace("\r\n", "\n") + "\n"
    service = frame.board.service
    try:
        if not identity_of(request).may(Permission.APPS_MANAGE, None):
            require(request, Permission.APPS_MANAGE, await service.name_of(text))
        inputs = [input_of(form)] if form.get("stream") else []
        done = await service.backfills.backfill(text, inputs, by=session_of(request).user)
    except MeshError as error:
        values = {"given": form, "wrong": form_errors(text, error)}
        return frame.shown(request, PageView("backfill.html", values, 400))
    return frame.done(f"/apps/{done.app}?done=backfilled")


def input_of(form: dict[str, str]) -> HistoryInput:
    """The past events of a form; MESH-A400 where something is missing."""
    path, time = form.get("path", ""), form.get("time", "")
    if not path:
        raise MeshError(
            "MESH-A400", "the past events are missing", hint="Name files, a table or a stream."
        )
    if not time and not is_stream(path):
        raise MeshError(
            "MESH-A400",
            "the column with the times of the events is missing",
            hint="Messages of a JetStream stream have times of their own.",
        )
    return HistoryInput(form["stream"], path, time, form.get("until") or None)
