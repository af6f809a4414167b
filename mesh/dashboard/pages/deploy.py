"""Deploy and edit: the text with its errors in place, the plan, the changes, and the deploy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mesh.dashboard.first_apps import first_app
from mesh.dashboard.graph import planned_cells
from mesh.dashboard.guard import fields_of, form_of, identity_of, require, session_of
from mesh.dashboard.pages import previews
from mesh.dashboard.rendering import PageView
from mesh.dashboard.source import NO_ERRORS, form_errors
from mesh.errors import MeshError
from mesh.language.naming import named
from mesh.language.tokens import KEYWORDS
from mesh.model.access import Permission
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from mesh.dashboard.board import Board
    from mesh.dashboard.responses import PageFrame

START = """@App:name('Shop')
define stream Orders (item string, price double);

@info(name='dear')
from Orders[price > 100.0] select item, price insert into DearOrders;
"""


async def show(board: Board, request: Request) -> PageView:
    """The editor, with the text of an app that is there."""
    app = request.path_params.get("app", "")
    spec = await board.service.app(app) if app else None
    text = START if spec is None else spec.text
    values = _values(app, text, request.query_params.get("then", ""))
    return PageView("deploy.html", {**values, "streams": previews.streams_of(spec)})


async def act(frame: PageFrame, request: Request) -> Response:
    """Check a text and show its plan and its changes, play it on events, or deploy it."""
    form = await form_of(request)
    app = request.path_params.get("app", "")
    written = form.get("text", [""])[0].replace("\r\n", "\n")
    # An edit of a text without a name is of the app of the page.
    text = named(written, app)
    reset = form.get("reset", [])
    panel = previews.panel_of(form)
    service = frame.board.service
    record = service.record(app) if app else None
    streams = previews.streams_of(None if record is None else record.spec)
    values = _values(app, written, form.get("then", [""])[0])
    values |= {"asked": panel, "streams": streams}
    order = form.get("do", [""])[0]
    try:
        # A user with the permission for some apps may deploy a text of those.
        if not identity_of(request).may(Permission.APPS_MANAGE, None):
            require(request, Permission.APPS_MANAGE, await service.name_of(text))
        if order in ("preview", "keep"):
            return await previews.answer(frame, request, text, values, keep=order == "keep")
        preview = await service.preview(text, reset=reset)
        if app and preview.app != app:
            raise MeshError(
                "MESH-A400",
                f'this is the text of app "{preview.app}", not of "{app}"',
                hint="Deploy another app on the page Deploy.",
            )
        if order == "deploy" and form.get("seen", [""])[0] == _seen(preview):
            done = await service.update(text, by=session_of(request).user, reset=reset)
            back = "start" if values["then"] else "apps"
            return frame.done(f"/{back}/{done.app}?done=deployed")
    except MeshError as error:
        wrong = form_errors(written, error)
        return frame.shown(request, PageView("deploy.html", {**values, "wrong": wrong}, 400))
    # The deploy is of the changes that were shown, also if the app was changed meanwhile.
    drawing = await service.drawing(text)
    view = {"preview": preview, "reset": reset, "mark": _seen(preview)}
    view |= {"drawing": drawing, "cells": planned_cells(drawing, preview.changes)}
    return frame.shown(request, PageView("deploy.html", {**values, **view}))


async def language(frame: PageFrame, request: Request) -> Response:
    """An answer about the text in the editor, as JSON: errors, completion or hover."""
    import orjson
    from starlette.responses import Response

    # A text that is being written changes nothing, so no key is audited.
    request.scope["mesh.only_reads"] = True
    form = await fields_of(request)
    try:
        place = [int(form.get(part, "1")) for part in ("line", "column")]
    except ValueError as error:
        raise MeshError("MESH-A400", "line and column are whole numbers") from error
    text = form.get("text", "").replace("\r\n", "\n")
    desk = frame.board.service.language
    answer = await desk.answer(form.get("asked", ""), text, form.get("app", ""), *place)
    return Response(orjson.dumps(answer), media_type="application/json")


def _values(app: str, text: str, then: str) -> dict[str, Any]:
    """The values of the page; ``then`` is ``start`` for a page that leads back to a first run."""
    values: dict[str, Any] = {"app": app, "text": text, "wrong": NO_ERRORS}
    values["then"] = "start" if then == "start" and first_app(app) else ""
    values |= {"words": sorted(KEYWORDS), "types": [str(kind) for kind in AttributeType]}
    return {**values, "preview": None, "reset": (), "mark": "", **previews.EMPTY}


def _seen(preview: Any) -> str:
    """A mark of the changes that a person has seen."""
    import hashlib

    import orjson

    digested = orjson.dumps([preview.app, preview.is_new, preview.changes, preview.refused])
    return hashlib.sha256(digested).hexdigest()[:32]
