"""The page of a stream: schema, subjects, sequences, its last events, and an event for a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from mesh.dashboard.guard import form_of, identity_of, require
from mesh.dashboard.pages.app import channels_of
from mesh.dashboard.rendering import View
from mesh.errors import MeshError
from mesh.model.access import Permission
from mesh.model.events import SimulatedEvent

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from mesh.dashboard.board import Board
    from mesh.dashboard.responses import Frame
    from mesh.model.app import Channel

#: Events on the page, and those that a filter looks through.
SHOWN: Final = 20
SEARCHED: Final = 200
#: Of each type, a value for the example of an event.
_EXAMPLES: Final = {
    "string": "text",
    "bool": True,
    "int": 1,
    "long": 1,
    "float": 1.5,
    "double": 1.5,
}


async def show(board: Board, request: Request) -> View:
    """The stream."""
    seen = await board.see()
    app, stream = request.path_params["app"], request.path_params["stream"]
    status = seen.app(app)
    streams = board.service.streams
    channel = streams.channel(app, stream)
    text = request.query_params.get("q", "")[:200]

    async def ask() -> object:
        return await streams.last(app, stream, SEARCHED if text else SHOWN, text)

    # The page shows payloads to those who may read them, and the schema to others.
    may_read = identity_of(request).may(Permission.DATA_READ, app)
    if may_read:
        require(request, Permission.DATA_READ, app)
    events = await board.kept(("tap", app, stream, text), 0.9, ask) if may_read else []
    spec = await board.service.app(app)
    ways = [c for c in await channels_of(board, app) if c.stream == stream]
    return View(
        "stream.html",
        {
            "seen": seen,
            "app": status,
            "stream": stream,
            "channel": channel,
            "ways": ways,
            "readers": [g.name for g in spec.groups if _reads(g.inputs, stream)],
            "writers": [g.name for g in spec.groups if _writes(g.outputs, stream)],
            "events": events[:SHOWN],
            "text": text,
            "example": example_of(channel),
            "done": request.query_params.get("done", ""),
        },
    )


def example_of(channel: Channel) -> str:
    """An event that fits the schema, as JSON."""
    event = {a.name: _EXAMPLES.get(str(a.type)) for a in channel.stream.attributes}
    return orjson.dumps(event).decode()


def _reads(inputs: object, stream: str) -> bool:
    return any(one.channel.stream.name == stream for one in inputs)  # type: ignore[attr-defined]


def _writes(outputs: object, stream: str) -> bool:
    return any(one.stream.name == stream for one in outputs)  # type: ignore[attr-defined]


async def act(frame: Frame, request: Request) -> Response:
    """Publish an event for a test."""
    form = await form_of(request)
    app, stream = request.path_params["app"], request.path_params["stream"]
    text = form.get("event", [""])[0]
    try:
        event = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise MeshError("MESH-A400", "the event is not JSON", detail=f"{error}.") from error
    if not isinstance(event, dict | list):
        raise MeshError("MESH-A400", "an event is a JSON object, or a list of its values")
    await frame.board.service.events.send(app, [SimulatedEvent(stream, event, None)])
    return frame.done(f"/apps/{app}/s/{stream}?done=published")
