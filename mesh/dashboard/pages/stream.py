"""The page of a stream: schema, subjects, sequences, its last events, and an event for a test."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import orjson

from mesh.dashboard.guard import fields_of, identity_of, require
from mesh.dashboard.pages.app import channels_of
from mesh.dashboard.responses import PageView, status_of
from mesh.errors import MeshError
from mesh.model.access import Permission
from mesh.model.error_entry import SimulatedEvent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from mesh.dashboard.board import Board
    from mesh.dashboard.responses import PageFrame
    from mesh.model.app import Channel

#: Events on the page, and those that a filter looks through.
SHOWN: Final = 20
SEARCHED: Final = 200
#: Characters of an event that can be copied.
COPIED_MAX: Final = 2000
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
#: Of each type, a value for the example of an event.
_EXAMPLES: Final = {
    "string": "text",
    "bool": True,
    "int": 1,
    "long": 1,
    "float": 1.5,
    "double": 1.5,
}


async def show(board: Board, request: Request) -> PageView:
    """The stream."""
    return await _view(board, request)


async def _view(
    board: Board, request: Request, written: str = "", error: MeshError | None = None
) -> PageView:
    """The stream, with the event that was written and its error."""
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
    events = await board.cached(("tap", app, stream, text), 0.9, ask) if may_read else []
    spec = await board.service.app(app)
    ways = [c for c in await channels_of(board, app) if c.stream == stream]
    return PageView(
        "stream.html",
        {
            "seen": seen,
            "app": status,
            "stream": stream,
            "channel": channel,
            "ways": ways,
            "readers": [g.name for g in spec.groups if _reads(g.inputs, stream)],
            "writers": [g.name for g in spec.groups if _writes(g.outputs, stream)],
            "events": [(one, [copied(event) for event in one.events]) for one in events[:SHOWN]],
            "text": text,
            "example": example_of(channel),
            "written": written or example_of(channel),
            "error": error,
            "done": request.query_params.get("done", "") if error is None else "",
        },
        status=200 if error is None else status_of(error),
    )


def copied(event: object) -> str:
    """An event as JSON in ASCII, to copy; empty for a long one and for what is no event.

    Characters that hide or turn others are codes in it, as on the page.
    """
    if not isinstance(event, dict | list):
        return ""
    text = json.dumps(event, default=str)
    return text if len(text) <= COPIED_MAX else ""


def example_of(channel: Channel) -> str:
    """An event that fits the schema, as JSON."""
    event = {a.name: _EXAMPLES.get(str(a.type)) for a in channel.stream.attributes}
    return orjson.dumps(event).decode()


def _reads(inputs: object, stream: str) -> bool:
    return any(one.channel.stream.name == stream for one in inputs)  # type: ignore[attr-defined]


def _writes(outputs: object, stream: str) -> bool:
    return any(one.stream.name == stream for one in outputs)  # type: ignore[attr-defined]


async def act(frame: PageFrame, request: Request) -> Response:
    """Publish an event for a test, or a stored one again."""
    form = await fields_of(request)
    app, stream = request.path_params["app"], request.path_params["stream"]
    is_replay, events = form.get("do") == "replay", frame.board.service.events
    if is_replay:
        # A user who publishes a stored event again may read it.
        require(request, Permission.DATA_READ, app)
        require(request, Permission.DATA_WRITE, app)
    try:
        event = await _stored(frame, app, stream, form) if is_replay else _written(form)
        if not isinstance(event, dict | list):
            raise MeshError("MESH-A400", "an event is a JSON object, or a list of its values")
        one = SimulatedEvent(stream, event, None)
        if not is_replay:
            events.check(app, one)
        await events.send(app, [one])
    except MeshError as error:
        if is_replay or error.code == "MESH-A403":
            raise
        view = await _view(frame.board, request, form.get("event", ""), error)
        # The audit has what the form needed.
        require(request, Permission.DATA_WRITE, app)
        return frame.shown(request, view)
    done = "replayed" if is_replay else "published"
    return frame.done(f"/apps/{app}/s/{stream}?{urlencode({'q': form.get('q', ''), 'done': done})}")


def _written(form: Mapping[str, str]) -> object:
    """The event that a person has written."""
    try:
        return orjson.loads(form.get("event", ""))
    except orjson.JSONDecodeError as error:
        raise MeshError("MESH-A400", "the event is not JSON", detail=f"{error}.") from error


async def _stored(frame: PageFrame, app: str, stream: str, form: Mapping[str, str]) -> object:
    """The event of the stream that a form names."""
    sequence, index = form.get("sequence", ""), form.get("index", "0")
    if not (_NUMBER.fullmatch(sequence) and _NUMBER.fullmatch(index)):
        raise MeshError("MESH-A400", "an event is named by its sequence, a number")
    streams = frame.board.service.streams
    message = await streams.message(app, stream, form.get("js_stream", ""), int(sequence))
    if int(index) >= len(message.events):
        raise MeshError("MESH-A404", f"message {sequence} has no event {index}")
    return message.events[int(index)]
