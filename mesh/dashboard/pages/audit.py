"""The audit: requests with user, address and result, the newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.dashboard.rendering import View
from mesh.errors import MeshError
from mesh.jetstream.audit import SEARCHED, filter_of
from mesh.jetstream.audit_entries import result_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from mesh.dashboard.responses import Frame

ROWS: Final = 100
ROWS_MAX: Final = 1000
METHODS: Final = ("GET", "POST", "PUT", "DELETE")
RESULTS: Final = ("done", "refused", "failed")


async def show(frame: Frame, request: Request) -> View:
    """The entries that fit the filter."""
    given = {key: value[:200] for key, value in request.query_params.items()}
    wanted = filter_of(given)
    more = given.get("all") == "1"
    values = {"wanted": wanted, "methods": METHODS, "results": RESULTS, "searched": SEARCHED}
    limit = ROWS_MAX if more else ROWS
    try:
        found = (await frame.door.accounts.audit(wanted, limit))[::-1]
    except MeshError as error:
        return View("audit.html", {**values, "rows": [], "error": error, "is_cut": False})
    rows = [(one, result_of(int(one["status"]))) for one in found]
    is_cut = len(rows) == limit and not more
    return View("audit.html", {**values, "rows": rows, "error": None, "is_cut": is_cut})
