"""The panel of the deploy and edit pages with the outputs of a text on events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from starlette.responses import Response

from mesh.dashboard.rendering import PageView
from mesh.dashboard.source import NO_ERRORS, form_errors
from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from starlette.requests import Request

    from mesh.dashboard.responses import PageFrame
    from mesh.model.app import AppSpec

#: Rows of one table.
ROWS: Final = 300
LAST: Final = "100"
#: Values of a page before a preview.
EMPTY: Final[Mapping[str, Any]] = {
    "asked": {"events": "", "from": "", "last": LAST, "since": "", "until": "", "against": True},
    "streams": (),
    "found": None,
    "preview_wrong": NO_ERRORS,
}


def streams_of(spec: AppSpec | None) -> list[str]:
    """The streams of a running app whose stored events may be played; none without one."""
    return sorted({one.stream.name for one in spec.channels}) if spec is not None else []


def panel_of(form: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The fields of the panel, as they were filled in."""
    names = ("events", "from", "last", "since", "until")
    fields: dict[str, Any] = {name: form.get(name, [""])[0].strip() for name in names}
    return {**fields, "against": bool(form.get("against"))}


async def answer(
    frame: PageFrame, request: Request, text: str, values: dict[str, Any], *, keep: bool
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
        last = panel["last"] or LAST
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
    return frame.shown(request, PageView("deploy.html", {**values, "found": shown(result)}))


def shown(result: Mapping[str, Any]) -> dict[str, Any]:
    """The answer as the panel has it: rows in order, those that differ, and how many are left."""
    rows = list(_rows(result))
    compared = []
    for stream in result["against"]["streams"] if result["against"] else ():
        differ = [row for row in stream["rows"] if row["kind"] != "same"]
        stream_rows = stream["rows"] if len(stream["rows"]) <= ROWS else differ
        compared.append({**stream, "rows": stream_rows[:ROWS], "more": len(stream_rows) - ROWS})
    sent = sum(bool(one["stream"]) for one in result["inputs"])
    return {
        **result,
        "sent": sent,
        "rows": rows[:ROWS],
        "more": len(rows) - ROWS,
        "compared": compared,
    }


def _rows(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Each event, and what it caused; before it what timers emitted."""
    timers: dict[int, list[dict[str, Any]]] = {}
    caused: dict[int, list[dict[str, Any]]] = {}
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
