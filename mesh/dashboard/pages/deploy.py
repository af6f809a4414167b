"""Deploy and edit: the text with its errors in place, the plan, the changes, and the deploy.

A panel shows what the text emits on events, beside what the app has emitted.
"""

from __future__ import annotations

from itertools import chain, count
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from starlette.responses import Response

from mesh.dashboard.first_apps import first_app
from mesh.dashboard.graph import planned_cells
from mesh.dashboard.guard import fields_of, form_of, identity_of, require, session_of
from mesh.dashboard.responses import PageView, status_of
from mesh.dashboard.source import NO_ERRORS, form_errors
from mesh.errors import MeshError
from mesh.language.naming import named
from mesh.language.tokens import KEYWORDS
from mesh.language_service.proposals import ClusterStream, streams_of
from mesh.manager.language import Question
from mesh.model.access import Permission
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from starlette.requests import Request

    from mesh.dashboard.board import Board
    from mesh.dashboard.responses import PageFrame
    from mesh.model.app import AppSpec
    from mesh.model.values import JsonMapping, JsonObject

START = """@App:name('{name}')
define stream Orders (item string, price double);

@info(name='dear')
from Orders[price > 100.0] select item, price insert into DearOrders;
"""

#: Streams of the cluster that an editor proposes.
_STREAMS_MAX: Final = 200
#: Rows of one table of a preview, and the number of stored events by default.
_ROWS: Final = 300
_LAST: Final = "100"
#: Values of a page before a preview.
_NO_PREVIEW: Final[JsonMapping] = {
    "asked": {"events": "", "from": "", "last": _LAST, "since": "", "until": "", "against": True},
    "streams": (),
    "found": None,
    "preview_wrong": NO_ERRORS,
}


async def show(board: Board, request: Request) -> PageView:
    """The editor, with the text of an app that is there."""
    app = request.path_params.get("app", "")
    spec = await board.service.app(app) if app else None
    text = _start((await board.see()).apps) if spec is None else spec.text
    values = _values(app, text, request.query_params.get("then", ""))
    return PageView("deploy.html", {**values, "streams": _streams_of(spec)})


async def act(frame: PageFrame, request: Request) -> Response:
    """Check a text and show its plan and its changes, play it on events, or deploy it."""
    form = await form_of(request)
    app = request.path_params.get("app", "")
    written = form.get("text", [""])[0].replace("\r\n", "\n")
    # An edit of a text without a name is of the app of the page.
    text = named(written, app)
    reset = form.get("reset", [])
    panel = _panel_of(form)
    service = frame.board.service
    record = service.record(app) if app else None
    streams = _streams_of(None if record is None else record.spec)
    values = _values(app, written, form.get("then", [""])[0])
    values |= {"asked": panel, "streams": streams}
    order = form.get("do", [""])[0]
    try:
        # A user with the permission for some apps may deploy a text of those.
        if not identity_of(request).may(Permission.APPS_MANAGE, None):
            require(request, Permission.APPS_MANAGE, await service.name_of(text))
        if order in ("preview", "keep"):
            return await _play(frame, request, text, values, keep=order == "keep")
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


def _start(apps: Collection[str]) -> str:
    """A text to begin with, whose name no app has."""
    names = chain(["Shop"], (f"Shop{number}" for number in count(2)))
    return START.format(name=next(name for name in names if name not in apps))


def _streams_of(spec: AppSpec | None) -> list[str]:
    """The streams of a running app whose stored events may be played; none without one."""
    return sorted({one.stream.name for one in spec.channels}) if spec is not None else []


def _panel_of(form: Mapping[str, Sequence[str]]) -> JsonObject:
    """The fields of the panel, as they were filled in."""
    names = ("events", "from", "last", "since", "until")
    fields: JsonObject = {name: form.get(name, [""])[0].strip() for name in names}
    return {**fields, "against": bool(form.get("against"))}


async def _play(
    frame: PageFrame, request: Request, text: str, values: JsonObject, *, keep: bool
) -> Response:
    """The page with the outputs or the error in its panel; a file of a test with ``keep``.

    Raises:
        MeshError: MESH-A403 for a text or events that the user may not use.
    """
    app, panel = values["app"], values["asked"]
    service = frame.board.service
    try:
        name = await service.name_of(text)
        if app and name != app:
            raise MeshError("MESH-A400", f'this is the text of app "{name}", not of "{app}"')
        last = panel["last"] or _LAST
        if not (last.isascii() and last.isdigit() and 0 < int(last[:9]) <= 10_000):
            raise MeshError("MESH-A400", "the number of stored events is 1 to 10000")
        result = await service.previews.preview(
            text,
            events=panel["events"],
            streams=[one for one in panel["from"].replace(",", " ").split() if one],
            last=int(last),
            since=panel["since"],
            until=panel["until"],
            against=app if panel["against"] else "",
            keep=keep,
        )
    except MeshError as error:
        result = {"preview_wrong": form_errors(values["text"], error)}
        # The script puts no answer with another status into the page.
        status = 200 if "hx-request" in request.headers else 400
        return frame.shown(request, PageView("deploy.html", {**values, **result}, status))
    if keep:
        file = f"attachment; filename*=UTF-8''{quote(name, safe='')}.yaml"
        headers = {"Content-Disposition": file}
        return Response(result["test"], media_type="application/yaml", headers=headers)
    return frame.shown(request, PageView("deploy.html", {**values, "found": _shown_result(result)}))


def _shown_result(result: JsonMapping) -> JsonObject:
    """The answer as the panel has it: rows in order, those that differ, and how many are left."""
    rows = list(_rows(result))
    compared = []
    for stream in result["against"]["streams"] if result["against"] else ():
        differ = [row for row in stream["rows"] if row["kind"] != "same"]
        stream_rows = stream["rows"] if len(stream["rows"]) <= _ROWS else differ
        compared.append({**stream, "rows": stream_rows[:_ROWS], "more": len(stream_rows) - _ROWS})
    sent = sum(bool(one["stream"]) for one in result["inputs"])
    return {
        **result,
        "sent": sent,
        "rows": rows[:_ROWS],
        "more": len(rows) - _ROWS,
        "compared": compared,
    }


def _rows(result: JsonMapping) -> Iterator[JsonObject]:
    """Each event, and what it caused; before it what timers emitted."""
    timers: dict[int, list[JsonObject]] = {}
    caused: dict[int, list[JsonObject]] = {}
    for one in result["outputs"]:
        to = timers if one["timer"] else caused
        kind = "timer" if one["timer"] else "output"
        to.setdefault(one["input"], []).append({**one, "kind": kind})
    for one in result["failed"]:
        row = {**one, "kind": "failed", "time": None}
        caused.setdefault(one["input"], []).append(row)
    for number, one in enumerate(result["inputs"], 1):
        yield from timers.get(number, ())
        if one["stream"]:
            yield {**one, "kind": "event", "input": number}
        yield from caused.get(number, ())


async def language(frame: PageFrame, request: Request) -> Response:
    """An answer about the text in the editor, as JSON; an error of a question is one, too."""
    import orjson
    from starlette.responses import Response

    # A text that is being written changes nothing, so no key is audited.
    request.scope["mesh.only_reads"] = True
    form = await fields_of(request)
    try:
        line, column = (int(form.get(part, "1")) for part in ("line", "column"))
    except ValueError as error:
        raise MeshError("MESH-A400", "line and column are whole numbers") from error
    text = form.get("text", "").replace("\r\n", "\n")
    asked = form.get("asked", "")
    streams = await _cluster_streams(frame.board) if asked == "completion" else ()
    name, to = form.get("app", ""), form.get("new_name", "")
    question = Question(asked, text, name, line, column, to, streams)
    try:
        answer, status = await frame.board.service.language.answer(question), 200
    except MeshError as error:
        answer, status = error.to_dict(), status_of(error)
    return Response(orjson.dumps(answer), status, media_type="application/json")


async def _cluster_streams(board: Board) -> tuple[ClusterStream, ...]:
    """The streams of the apps that the user may see, the first ones."""
    found: list[ClusterStream] = []
    for app in sorted((await board.see()).apps):
        record = board.service.record(app)
        found += streams_of(record.spec) if record is not None else ()
        if len(found) >= _STREAMS_MAX:
            break
    return tuple(found[:_STREAMS_MAX])


def _values(app: str, text: str, then: str) -> JsonObject:
    """The values of the page; ``then`` is ``start`` for a page that leads back to a first run."""
    values: JsonObject = {"app": app, "text": text, "wrong": NO_ERRORS}
    values["then"] = "start" if then == "start" and first_app(app) else ""
    values |= {"words": sorted(KEYWORDS), "types": [str(kind) for kind in AttributeType]}
    return {**values, "preview": None, "reset": (), "mark": "", **_NO_PREVIEW}


def _seen(preview: Any) -> str:
    """A mark of the changes that a person has seen."""
    import hashlib

    import orjson

    digested = orjson.dumps([preview.app, preview.is_new, preview.changes, preview.refused])
    return hashlib.sha256(digested).hexdigest()[:32]
