"""Pages of an app's past: the inputs of an event, and the outputs of an app beside its fork's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import orjson

from mesh.dashboard.guard import require
from mesh.dashboard.responses import PageView
from mesh.errors import MeshError
from mesh.model.access import Permission

if TYPE_CHECKING:
    from starlette.requests import Request

    from mesh.dashboard.board import Board
    from mesh.model.values import JsonObject

#: Seconds for which the lineage of an event, which never changes, and a comparison are kept.
LINEAGE_S: Final = 600.0
COMPARED_S: Final = 15.0
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_COUNTS: Final = ("same", "new", "gone", "changed")


async def why(board: Board, request: Request) -> PageView:
    """The lineage of an event: its inputs, back to those that came from outside."""
    params = request.path_params
    app, stream, sequence = params["app"], params["stream"], params["sequence"]
    index = request.query_params.get("index", "0")
    if not (_NUMBER.fullmatch(sequence) and _NUMBER.fullmatch(index)):
        raise MeshError("MESH-A400", "an event is named by its sequence, a number")
    seen = await board.see()
    seen.app(app)
    place = stream, int(sequence), int(index)

    async def ask() -> Any:
        return await board.service.past.why(app, *place)

    cause = await board.cached(("why", app, *place), LINEAGE_S, ask)
    values = {"seen": seen, "app": app, "stream": stream, "sequence": int(sequence)}
    return PageView("why.html", {**values, "causes": flattened(cause)})


def flattened(cause: JsonObject, depth: int = 0) -> list[JsonObject]:
    """A lineage as a list in the order of reading, each entry with its ``depth`` from 0."""
    event = orjson.dumps(cause["event"]).decode()
    entries = [{**cause, "depth": depth, "event": event}]
    for one in cause["inputs"]:
        entries += flattened(one, depth + 1)
    return entries


async def compare(board: Board, request: Request) -> PageView:
    """The form; with ``go=1`` in the URL also the comparison."""
    seen, query = await board.see(), request.query_params
    app = request.path_params["app"]
    seen.app(app)
    other = query.get("with", "")
    key = [name.strip() for name in query.get("key", "").split(",") if name.strip()]
    values: JsonObject = {"seen": seen, "app": app, "other": other, "key": ", ".join(key)}
    values |= {"choices": sorted(set(seen.apps) - {app}), "found": None, "error": None}
    if query.get("go") != "1":
        return PageView("compare.html", values)
    require(request, Permission.DATA_READ, other)

    async def ask() -> Any:
        return await board.service.past.compare(app, other, [], key)

    try:
        comparison = await board.cached(("compare", app, other, *key), COMPARED_S, ask)
    except MeshError as error:
        return PageView("compare.html", {**values, "error": error}, 400)
    rows = [{**one, "counts": [one[name] for name in _COUNTS]} for one in comparison["streams"]]
    first = comparison["first"]
    if first is not None:
        sides = [
            (comparison[side], first[side]) for side in ("app", "fork") if first[side] is not None
        ]
        inputs = [{**one, "event": orjson.dumps(one["event"]).decode()} for one in first["inputs"]]
        first = {**first, "sides": sides, "inputs": inputs}
    more = {"found": comparison, "rows": rows, "first": first, "counts": _COUNTS}
    return PageView("compare.html", {**values, **more})
