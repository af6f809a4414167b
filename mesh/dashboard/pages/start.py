"""A first run: an app of the cookbook with generated events, a change to it, and its outputs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from mesh.dashboard.first_apps import FIRST_APPS, FirstApp, first_app, text_of
from mesh.dashboard.guard import fields_of, require, session_of
from mesh.dashboard.responses import PageView
from mesh.errors import MeshError
from mesh.model.access import Permission, sees
from mesh.model.simulation import FeedState

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from mesh.dashboard.board import Board
    from mesh.dashboard.responses import PageFrame
    from mesh.model.values import JsonObject

#: Events of each stream on the page.
SHOWN: Final = 6
#: Age at which the events of a stream, and the state of the simulation, are read again, seconds.
FRESH_S: Final = 0.9


async def choose(board: Board, request: Request) -> PageView:
    """The apps to choose from."""
    return PageView("start.html", {"first_apps": FIRST_APPS, "seen": await board.see()})


async def begin(frame: PageFrame, request: Request) -> Response:
    """Deploy the chosen app, and generate events for it; one that is there is only shown."""
    form = await fields_of(request)
    one = _require_app(form.get("app", ""))
    require(request, Permission.APPS_MANAGE, one.app)
    require(request, Permission.DATA_WRITE, one.app)
    service, by = frame.board.service, session_of(request).user
    record = service.record(one.app)
    if record is None or record.deleting:
        await service.deploy(text_of(one), by=by)
        await _generate(frame.board, one, by)
    return frame.done(f"/start/{one.app}")


async def show(board: Board, request: Request) -> PageView:
    """The steps of an app, with its last inputs and outputs."""
    one = _require_app(request.path_params["app"])
    seen = await board.see()
    status = seen.app(one.app)
    spec = await board.service.app(one.app)
    outputs = sorted({c.stream.name for c in spec.channels} - set(one.inputs))
    may_read = sees(Permission.DATA_READ, one.app)
    if may_read:
        require(request, Permission.DATA_READ, one.app)
    state = await board.cached(("feed", one.app), FRESH_S, lambda: _feed_state(board, one))
    values: JsonObject = {
        "seen": seen,
        "app": status,
        "one": one,
        "flow": seen.flow_of(one.app),
        "generates": state is FeedState.RUN,
        "inputs": [(name, await _last(board, one, name, may_read)) for name in one.inputs],
        "outputs": [(name, await _last(board, one, name, may_read)) for name in outputs],
        "text": one.changed(spec.text),
        "is_changed": spec.text != text_of(one),
        "has_effect": spec.text == one.changed(text_of(one)),
        "done": request.query_params.get("done", ""),
    }
    return PageView("start_app.html", values)


async def act(frame: PageFrame, request: Request) -> Response:
    """Start or stop the events, or remove the app with its simulation."""
    form = await fields_of(request)
    one = _require_app(request.path_params["app"])
    service, by = frame.board.service, session_of(request).user
    match form.get("do", ""):
        case "generate":
            require(request, Permission.DATA_WRITE, one.app)
            await _generate(frame.board, one, by)
        case "stop":
            require(request, Permission.DATA_WRITE, one.app)
            await _end(frame.board, one)
        case "undeploy":
            await _end(frame.board, one)
            await service.undeploy(one.app, by=by)
            return frame.done("/start")
        case _:
            raise MeshError("MESH-A400", "the form asks for nothing that is known")
    return frame.done(f"/start/{one.app}")


def _require_app(app: str) -> FirstApp:
    one = first_app(app)
    if one is None:
        raise MeshError("MESH-A404", f'"{app}" is no app of a first run')
    return one


async def _generate(board: Board, one: FirstApp, by: str) -> None:
    """Run the simulation of an app; one of an earlier run begins again."""
    await _end(board, one)
    await board.service.feeds.create(one.simulation(), by=by)
    await board.service.feeds.operate(one.feed, "run", by=by)


async def _end(board: Board, one: FirstApp) -> None:
    with contextlib.suppress(MeshError):
        await board.service.feeds.delete(one.feed)


async def _feed_state(board: Board, one: FirstApp) -> FeedState:
    try:
        return (await board.service.feeds.status(one.feed)).state
    except MeshError:
        return FeedState.STOP


async def _last(board: Board, one: FirstApp, stream: str, may_read: bool) -> Any:
    """The last events of a stream; none for a user who may not read them."""
    if not may_read:
        return []
    streams = board.service.streams
    key = "first", one.app, stream
    return await board.cached(key, FRESH_S, lambda: streams.last(one.app, stream, SHOWN))
