"""The form that brings an app of Siddhi 3, 4 or 5 into a text that runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.dashboard.guard import fields_of
from mesh.dashboard.responses import PageView
from mesh.dashboard.source import NO_ERRORS, form_errors
from mesh.errors import MeshError
from mesh.model import names

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from mesh.dashboard.board import Board
    from mesh.dashboard.responses import PageFrame

#: Name of an app whose text has none.
NAME: Final = "Migrated"


async def show(board: Board, request: Request) -> PageView:
    """The form."""
    return PageView("migrate.html", {"given": {}, "found": None, "wrong": NO_ERRORS})


async def act(frame: PageFrame, request: Request) -> Response:
    """Show the migrated text with what is changed; nothing is deployed."""
    request.scope["mesh.only_reads"] = True
    form = await fields_of(request)
    text = form.get("text", "").replace("\r\n", "\n")
    fields = {"text": text, "name": form.get("name", "").strip()}
    wrong, result = NO_ERRORS, None
    try:
        name = names.app_token(fields["name"] or NAME)
        result = await frame.board.service.migrated(text, name)
    except MeshError as error:
        wrong = form_errors(text, error)
    values = {"given": fields, "found": result, "wrong": wrong}
    return frame.shown(request, PageView("migrate.html", values, 400 if wrong.errors else 200))
