"""The page of an app: state and remedy, graph, tabs, and what can be done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mesh.dashboard.charts import SPANS, charts_of
from mesh.dashboard.graph import cells_of, groups_of
from mesh.dashboard.guard import form_of, require, session_of
from mesh.dashboard.pages.errors import PAGE as ERRORS_SHOWN
from mesh.dashboard.pages.errors import whole as whole_entry
from mesh.dashboard.rendering import View
from mesh.errors import MeshError
from mesh.manager.overview import summary
from mesh.manager.problems import Concern
from mesh.model.access import Permission
from mesh.plan.guarantee_audit import Failure

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from mesh.dashboard.board import Board, Seen
    from mesh.dashboard.responses import Frame

TABS: Final = (
    "graph", "instances", "elements", "text", "guarantees", "checks", "backups", "errors", "story"
)  # fmt: skip
#: Age at which the figures of channels are asked for again, seconds.
CHANNELS_S: Final = 2.0
STORY_S: Final = 3.0
FINDINGS_S: Final = 5.0
GUARANTEES_S: Final = 10.0
STORY_ROWS: Final = 200


async def show(board: Board, request: Request) -> View:
    """The app with one of its tabs."""
    seen = await board.see()
    name = request.path_params["app"]
    status = seen.app(name)
    tab = request.query_params.get("tab", TABS[0])
    if tab not in TABS:
        raise MeshError("MESH-A404", "the app's page has no such tab")
    failed = await board.service.events.failed_counts()
    whole = summary(status, failed.get(name, 0))
    values: dict[str, Any] = {
        "seen": seen,
        "app": status,
        "whole": whole,
        "flow": seen.flow_of(name),
        "problems": [
            one
            for one in seen.overview.problems
            if one.name == name and one.concern in (Concern.APP, Concern.ERRORS)
        ],
        "groups": groups_of(status, seen),
        "tab": tab,
        "tabs": TABS,
        "done": request.query_params.get("done", ""),
    }
    return View("app.html", {**values, **await _of_tab(board, seen, request, tab)})


async def _of_tab(board: Board, seen: Seen, request: Request, tab: str) -> dict[str, Any]:
    name, service = request.path_params["app"], board.service
    match tab:
        case "graph":
            drawing = await service.plan_view(name, "drawing")
            channels = await channels_of(board, name)
            groups = groups_of(seen.app(name), seen)
            cells = cells_of(drawing, name, groups, {c.subject: c for c in channels})
            span = request.query_params.get("span", "15")
            charts = await charts_of(board, "app", name, span)
            found = {"drawing": drawing, "cells": cells, "channels": channels}
            return {**found, "charts": charts, "span": span, "spans": tuple(SPANS)}
        case "instances":
            group = request.query_params.get("group", "")
            chosen = [i for i in seen.app(name).instances if group in ("", i.group)]
            return {"group": group, "instances": [(i, seen.flow(i.instance)) for i in chosen]}
        case "elements":
            return {"elements": (await service.plan_view(name, "elements"))["elements"]}
        case "text":
            return {"text": (await service.app(name)).text}
        case "guarantees":
            return await guarantees_of(board, name)
        case "checks":
            return {"findings": await findings_of(board, name)}
        case "backups":
            return {"backups": list(reversed(await service.backups.known(name)))}
        case "errors":
            require(request, Permission.DATA_READ, name)
            entries = await service.events.failed(name, ERRORS_SHOWN)
            count = await service.events.failed_count(name)
            return {"entries": [whole_entry(one) for one in reversed(entries)], "count": count}
        case _:
            return {"entries": await story_of(board, name)}


async def channels_of(board: Board, app: str) -> Any:
    """The channels of an app, as one request in two seconds gets them."""
    return await board.kept(
        ("channels", app), CHANNELS_S, lambda: board.service.streams.states(app)
    )


async def findings_of(board: Board, app: str) -> Any:
    """Faults and risks of what NATS stores of an app."""
    return await board.kept(
        ("findings", app), FINDINGS_S, lambda: board.service.verification.verify(app)
    )


async def guarantees_of(board: Board, app: str) -> dict[str, Any]:
    """The audit of an app, and its rows by place and failure; a place may lack some failures."""
    found = await board.kept(
        ("guarantees", app), GUARANTEES_S, lambda: board.service.guarantees.of_app(app)
    )
    places: dict[tuple[str, str], dict[str, Any]] = {}
    for row in found.rows:
        places.setdefault((row.place.value, row.name), {})[row.failure.value] = row
    return {"held": found, "places": places, "failures": [one.value for one in Failure]}


async def story_of(board: Board, app: str) -> Any:
    """The story of an app, the newest entry first."""
    entries = await board.kept(("story", app), STORY_S, lambda: board.service.story(app))
    return list(reversed(entries))[:STORY_ROWS]


async def act(frame: Frame, request: Request) -> Response:
    """A button of the page."""
    form = await form_of(request)
    name, by = request.path_params["app"], session_of(request).user
    service = frame.board.service
    back = f"/apps/{name}"
    match form.get("do", [""])[0]:
        case "scale":
            group, parallel = form.get("group", [""])[0], form.get("parallel", [""])[0]
            if not (parallel.isascii() and parallel.isdigit() and len(parallel) < 6):
                raise MeshError("MESH-A400", "the number of instances is a whole number")
            await service.scale(name, group, int(parallel), by=by)
            return frame.done(f"{back}?tab=instances&done=scale")
        case "pause":
            await service.pause(name, by=by)
        case "resume":
            await service.resume(name, by=by)
        case "backup":
            await service.backups.make(name, by=by)
            return frame.done(f"{back}?tab=backups&done=backup")
        case "restore":
            revision = form.get("revision", [""])[0]
            await service.backups.restore(
                name, revision=revision, before_ms=None, other=None, replay=True, by=by
            )
        case "undeploy":
            if form.get("name", [""])[0] != name:
                raise MeshError(
                    "MESH-A400",
                    "the name does not match",
                    hint="Undeploying removes the app's events and states: type its name.",
                )
            await service.undeploy(name, by=by)
            return frame.done("/")
        case _:
            raise MeshError("MESH-A400", "the form asks for nothing that is known")
    return frame.done(back)


async def instance(board: Board, request: Request) -> View:
    """The page of an instance."""
    seen = await board.see()
    name, wanted = request.path_params["app"], request.path_params["instance"]
    status = seen.app(name)
    one = next((i for i in status.instances if i.instance == wanted), None)
    if one is None:
        raise MeshError("MESH-A404", f'app "{name}" has no instance "{wanted}"')
    entries = [e for e in await story_of(board, name) if e.instance == wanted]
    node = next((n for n in seen.nodes if n.id == one.worker), None)
    values = {"seen": seen, "app": status, "one": one, "flow": seen.flow(wanted), "node": node}
    return View("instance.html", {**values, "entries": entries})
