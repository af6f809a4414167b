"""The panel of the deploy and edit pages with the outputs of a text on events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from starlette.responses import Response

from mesh.dashboard.rendering import View
from mesh.dashboard.source import lines_of
from mesh.errors import MeshError, all_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from starlette.requests import Request

    from mesh.dashboard.responses import Frame
    from mesh.model.app import AppSpec

#: Rows of one table.
ROWS: Final = 300
LAST: Final = "100"
#: Values of a page before a preview.
EMPTY: Final[Mapping[str, Any]] = {
    "asked": {"events": "", "from": "", "last": LAST, "since": "", "until": "", "against": True},
    "streams": (),
    "found": None,
    "refusals": (),
    "wrong": (),
}


def streams_of(spec: AppSpec | None) -> list[str]:
    """The streams of a running app whose stored events may be played; none without one."""
    return sorted({one.stream.name for one in spec.channels}) if spec is not None else []


def asked_of(form: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The fields of the panel, as they were filled in."""
    names = ("events", "from", "last", "since", "until")
    found: dict[str, Any] = {name: form.get(name, [""])[0].strip() for name in names}
    return {**found, "against": bool(form.get("against"))}


async def answer(
    frame: Frame, request: Request, text: str, values: dict[str, Any], *, keep: bool
) -> Response:
    """The page with the outputs or the error in its panel; a file of a test with ``keep``.

    Raises:
        MeshError: MESH-A403 for a text or events that the user may not use.
    """
    app, asked = values["app"], values["asked"]
    service = frame.board.service
    try:
        name = await service.name_of(text)
        if app and name != app:
            raise MeshError("MESH-A400", f'this is the text of app "{name}", not of "{app}"')
        last = asked["last"] or LAST
        if not (last.isascii() and last.isdigit() and 0 < int(last[:9]) <= 10_000):
            raise MeshError("MESH-A400", "the number of stored events is 1 to 10000")
        found = await service.previews.preview(
            text,
            events=asked["events"],
            streams=[one for one in asked["from"].replace(",", " ").split() if one],
            last=int(last),
            since=asked["since"],
            until=asked["until"],
            against=app if asked["against"] else "",
            keep=keep,
        )
    except MeshError as error:
        if error.code == "MESH-A403":
            raise
        wrong = lines_of(values["text"], all_errors(error))
        told = {"refusals": all_errors(error), "wrong": [] if error.position is None else wrong}
        # The script puts no answer with another status into the page.
        status = 200 if "hx-request" in request.headers else 400
        return frame.shown(request, View("deploy.html", {**values, **told}, status))
    if keep:
        file = f"attachment; filename*=UTF-8''{quote(name, safe='')}.yaml"
        headers = {"Content-Disposition": file}
        return Response(found["test"], media_type="application/yaml", headers=headers)
    return frame.shown(request, View("deploy.html", {**values, "found": shown(found)}))


def shown(found: Mapping[str, Any]) -> dict[str, Any]:
    """The answer as the panel has it: rows in order, those that differ, and how many are left."""
    rows = list(_rows(found))
    compared = []
    for stream in found["against"]["streams"] if found["against"] else ():
        differ = [row for row in stream["rows"] if row["kind"] != "same"]
        own = stream["rows"] if len(stream["rows"]) <= ROWS else differ
        compared.append({**stream, "rows": own[:ROWS], "more": len(own) - ROWS})
    sent = sum(bool(one["stream"]) for one in found["inputs"])
    return {
        **found,
        "sent": sent,
        "rows": rows[:ROWS],
        "more": len(rows) - ROWS,
        "compared": compared,
    }


def _rows(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Each event, and what it caused; before it what timers emitted."""
    timers: dict[int, list[dict[str, Any]]] = {}
    caused: dict[int, list[dict[str, Any]]] = {}
    for one in found["outputs"]:
        to = timers if one["timer"] else caused
        kind = "timer" if one["timer"] else "output"
        to.setdefault(one["input"], []).append({**one, "kind": kind})
    for one in found["failed"]:
        row = {**one, "kind": "failed", "time": None}
        caused.setdefault(one["input"], []).append(row)
    for number, one in enumerate(found["inputs"], 1):
        yield from timers.get(number, ())
        if one["stream"]:
            yield {**one, "kind": "event", "input": number}
        yield from caused.get(number, ())
