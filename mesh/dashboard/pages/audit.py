"""The audit: requests with user, address and result, the newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.dashboard.responses import PageView
from mesh.errors import MeshError
from mesh.jetstream.audit import SEARCHED, filter_of, result_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from mesh.dashboard.responses import PageFrame

ROWS: Final = 100
ROWS_MAX: Final = 1000
METHODS: Final = ("GET", "POST", "PUT", "DELETE")
RESULTS: Final = ("done", "refused", "failed")


async def show(frame: PageFrame, request: Request) -> PageView:
    """The entries that fit the filter."""
    query = {key: value[:200] for key, value in request.query_params.items()}
    criteria = filter_of(query)
    more = query.get("all") == "1"
    values = {"wanted": criteria, "methods": METHODS, "results": RESULTS, "searched": SEARCHED}
    limit = ROWS_MAX if more else ROWS
    try:
        entries = (await frame.access.accounts.audit(criteria, limit))[::-1]
    except MeshError as error:
        return PageView("audit.html", {**values, "rows": [], "error": error, "is_cut": False})
    rows = [(one, result_of(int(one["status"]))) for one in entries]
    is_cut = len(rows) == limit and not more
    return PageView("audit.html", {**values, "rows": rows, "error": None, "is_cut": is_cut})
