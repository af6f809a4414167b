"""Failed events, by app and reason: replay, with a corrected event too, and discard."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import orjson

from mesh.dashboard.guard import form_of, identity_of, require, session_of
from mesh.dashboard.responses import PageView, status_of
from mesh.errors import MeshError
from mesh.model import error_entry, names
from mesh.model.access import Permission, sees

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from mesh.dashboard.board import Board
    from mesh.dashboard.responses import PageFrame
    from mesh.model.values import JsonMapping, JsonObject

#: Entries on a page; reasons are counted over more.
PAGE: Final = 50
COUNTED: Final = 500
#: Characters of an event in a form.
EVENT_CHARACTERS_MAX: Final = 20_000


async def show(board: Board, request: Request) -> PageView:
    """The apps with failed events, or those of one app."""
    seen = await board.see()
    app = request.query_params.get("app", "")
    if not app:
        entries = await board.cached("errors", 3.0, lambda: _counts(board))
        counts = [(name, count) for name, count in entries if sees(Permission.DATA_READ, name)]
        return PageView("errors.html", {"seen": seen, "app": app, "counts": counts})
    return await _of_app(board, request, app)


async def _of_app(
    board: Board,
    request: Request,
    app: str,
    refused: tuple[MeshError, int | None, str] | None = None,
) -> PageView:
    """The failed events of an app; ``refused``: an error, an entry, and the text written for it."""
    seen = await board.see()
    values: JsonObject = {"seen": seen, "app": app}
    values["done"] = request.query_params.get("done", "") if refused is None else ""
    error, corrected, written = refused or (None, None, "")
    require(request, Permission.DATA_READ, app)
    seen.app(app)
    before = _id(request.query_params.get("before", ""))
    entries = [whole(one) for one in await board.service.events.failed(app, COUNTED, before)]
    reasons = Counter(kind_of(entry) for entry in entries)
    reason = request.query_params.get("reason", "")
    chosen = [entry for entry in reversed(entries) if reason in ("", kind_of(entry))]
    shown = chosen[:PAGE]
    texts = {one["id"]: written for one in shown if one["id"] == corrected}
    return PageView(
        "errors.html",
        {
            **values,
            "error": error,
            "corrected": corrected if texts else None,
            "reasons": reasons.most_common(),
            "reason": reason,
            "entries": [(e, texts.get(e["id"]) or editable(e)) for e in shown],
            "older": shown[-1]["id"] if len(chosen) > PAGE else None,
            "count": await board.service.events.failed_count(app),
        },
        status=200 if error is None else status_of(error),
    )


async def _counts(board: Board) -> list[tuple[str, int]]:
    apps = (await board.see_all()).apps
    counts = await board.service.events.failed_counts()
    pairs = [(app, count) for app, count in counts.items() if app in apps]
    return sorted(pairs, key=lambda one: (-one[1], one[0]))


def whole(entry: JsonMapping) -> JsonObject:
    """An entry with each value that a page shows: a publisher may have stored any others."""
    time_ms = entry.get("time_ms")
    return {
        "stream": "",
        "group": "",
        "reason": "",
        "sequence": None,
        **entry,
        "time_ms": time_ms if isinstance(time_ms, int | float) else 0,
    }


def kind_of(entry: JsonMapping) -> str:
    """The reason of an entry without the values in it, so that equal faults count as one."""
    reason = str(entry.get("reason", "")).partition("\n")[0]
    return reason.partition(": ")[0][:200] if len(reason) > 80 else reason[:200]


def editable(entry: JsonMapping) -> str:
    """The event of an entry as text to correct; empty where it is not known."""
    try:
        event = error_entry.event_of(entry)
        text = (event or b"").decode()
    except (UnicodeDecodeError, TypeError, AttributeError):
        return ""
    return text if len(text) <= EVENT_CHARACTERS_MAX else ""


async def act(frame: PageFrame, request: Request) -> Response:
    """Replay or discard."""
    form = await form_of(request)
    app, by = form.get("app", [""])[0], session_of(request).user
    if not names.is_app_name(app):
        raise MeshError("MESH-A404", "the form names no app")
    require(request, Permission.DATA_WRITE, app)
    events = frame.board.service.events
    ids = [id_ for text in form.get("id", []) if (id_ := _id(text)) is not None]
    what = form.get("do", [""])[0]
    try:
        match what:
            case "replay":
                _some(ids)
                done = await events.replay(app, ids, _corrected(form, ids), by=by)
            case "replay-all":
                done = await events.replay(app, None, None, by=by)
            case "discard":
                _some(ids)
                done = await events.discard(app, ids, by=by)
            case "discard-all":
                done = await events.discard(app, None, by=by)
            case _:
                raise MeshError("MESH-A400", "the form asks for nothing that is known")
    except MeshError as error:
        if error.code == "MESH-A403" or not identity_of(request).may(Permission.DATA_READ, app):
            raise
        written = form.get("event", [""])[0] if len(ids) == 1 else ""
        refused = error, ids[0] if written else None, written
        view = await _of_app(frame.board, request, app, refused)
        # The audit has what the form needed.
        require(request, Permission.DATA_WRITE, app)
        return frame.shown(request, view)
    word = "replayed" if what.startswith("replay") else "discarded"
    return frame.done(f"/errors?app={app}&done={len(done.ids)}+{word}")


def _some(ids: Sequence[int]) -> None:
    if not ids:
        raise MeshError("MESH-A400", "no failed event is chosen", hint="Tick some of them.")


def _corrected(form: Mapping[str, list[str]], ids: Sequence[int]) -> bytes | None:
    """The corrected event of a form with one entry; None to send it as it was."""
    text = form.get("event", [""])[0].strip()
    if not text:
        return None
    if len(ids) != 1:
        raise MeshError("MESH-A400", "a corrected event takes the place of one failed event")
    try:
        event = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise MeshError(
            "MESH-A400", "the corrected event is not JSON", detail=f"{error}.",
            hint='An event is an object: {"item": "pen", "price": 1.5}',
        ) from error  # fmt: skip
    if not isinstance(event, dict):
        raise MeshError("MESH-A400", "the corrected event is not a JSON object")
    return orjson.dumps(event)


def _id(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
