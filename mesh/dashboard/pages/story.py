"""The timeline of an app: what happened, by whom and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.dashboard.guard import require
from mesh.dashboard.pages.app import story_of
from mesh.dashboard.responses import PageView
from mesh.errors import MeshError
from mesh.model import names
from mesh.model.access import Permission

if TYPE_CHECKING:
    from starlette.requests import Request

    from mesh.dashboard.board import Board


async def show(board: Board, request: Request) -> PageView:
    """The story of an app, also of one that was undeployed."""
    seen = await board.see()
    app, text = request.query_params.get("app", ""), request.query_params.get("q", "")[:200]
    if app and not names.is_app_name(app):
        raise MeshError("MESH-A404", "this is no name of an app")
    if app:
        require(request, Permission.APPS_VIEW, app)
    entries = await story_of(board, app) if app else []
    needle = text.lower()
    chosen = [e for e in entries if needle in f"{e.by} {e.text} {e.cause}".lower()]
    return PageView("story.html", {"seen": seen, "app": app, "entries": chosen, "text": text})
