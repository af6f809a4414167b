"""Search over apps, their streams and errors; what a user may not see is not found."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from mesh.dashboard.guard import identity_of, require_anywhere
from mesh.dashboard.pages.errors import kind_of, whole
from mesh.dashboard.responses import PageView
from mesh.dashboard.shown import payload
from mesh.model.access import Permission, sees
from mesh.model.names import app_of_token

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from mesh.dashboard.board import Board, Seen
    from mesh.manager.problems import Problem
    from mesh.model.values import JsonObject

TEXT_MAX: Final = 200
#: Results of a kind.
MOST: Final = 50
#: Apps whose failed events are looked at, those with the most first, and events of each.
APPS_MAX: Final = 20
EVENTS_MAX: Final = 200
#: Age at which failed events are read again, seconds.
ERRORS_S: Final = 3.0


async def show(board: Board, request: Request) -> PageView:
    """The form, and what fits its text."""
    text = request.query_params.get("q", "").strip()[:TEXT_MAX]
    values: JsonObject = {"text": text, "apps": (), "streams": (), "problems": (), "errors": ()}
    if not text:
        return PageView("search.html", values)
    seen = await board.see()
    identity = identity_of(request)
    problems = problems_with(text, seen)
    if not identity.may(Permission.MONITOR, None):
        problems = [one for one in problems if one.concern in ("app", "errors")]
    if identity.may_anywhere(Permission.DATA_READ):
        require_anywhere(request, Permission.DATA_READ)
        values["errors"] = await errors_with(text, board, seen)
    matches = {
        "apps": [(one.app, one.state) for one in seen.overview.apps if fits(text, one.app)],
        "streams": streams_with(text, board, seen),
        "problems": problems,
    }
    return PageView("search.html", {**values, **matches, "most": MOST})


def fits(text: str, name: str) -> bool:
    """Whether the own name of an app contains a text, in letters of any case."""
    return text.lower() in app_of_token(name).lower()


def problems_with(text: str, seen: Seen) -> Sequence[Problem]:
    """The problems of the overview whose title or cause contains a text."""
    needle = text.lower()
    return [p for p in seen.overview.problems if needle in f"{p.title}\n{p.cause}".lower()]


def streams_with(text: str, board: Board, seen: Seen) -> list[tuple[str, str]]:
    """App and name of each stream in NATS whose name, or whose app's, contains a text."""
    needle, streams = text.lower(), []
    for app in sorted(seen.apps):
        record = board.service.record(app)
        names = {one.stream.name for one in record.spec.channels} if record is not None else ()
        streams += [(app, name) for name in sorted(names) if needle in name.lower()]
    return streams


async def errors_with(text: str, board: Board, seen: Seen) -> list[tuple[str, str, int]]:
    """App, reason and number of failed events with a text, of apps whose data the user may read."""
    counts = await board.service.events.failed_counts()
    may = [app for app in seen.apps if counts.get(app) and sees(Permission.DATA_READ, app)]
    needle, matches = text.lower(), []
    for app in sorted(may, key=lambda one: (-counts[one], one))[:APPS_MAX]:
        key = "failed", app

        async def read(app: str = app) -> list[JsonObject]:
            return await board.service.events.failed(app, EVENTS_MAX)

        entries = [whole(one) for one in await board.cached(key, ERRORS_S, read)]
        kinds = Counter(kind_of(one) for one in entries if needle in _text_of(one))
        matches += [(app, kind, count) for kind, count in kinds.most_common()]
    return matches


def _text_of(entry: JsonObject) -> str:
    parts = (entry["reason"], entry["stream"], entry["group"], entry.get("data", ""))
    return "\n".join(payload(one, 20_000) for one in parts).lower()
