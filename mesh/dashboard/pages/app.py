"""The page of an app: state and remedy, graph, tabs, and what can be done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mesh.dashboard.charts import SPANS, chart_time, charts_of
from mesh.dashboard.graph import cells_of, groups_of
from mesh.dashboard.guard import form_of, require, session_of
from mesh.dashboard.pages.errors import PAGE as ERRORS_SHOWN
from mesh.dashboard.pages.errors import whole as whole_entry
from mesh.dashboard.responses import PageView
from mesh.errors import MeshError
from mesh.manager.overview import summary
from mesh.manager.problems import Concern
from mesh.model.access import Permission, sees
from mesh.plan.guarantees import Failure

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from mesh.dashboard.board import Board, Seen
    from mesh.dashboard.responses import PageFrame
    from mesh.model.values import JsonObject

TABS: Final = (
    "graph", "instances", "elements", "text", "guarantees", "checks", "backups", "errors", "story"
)  # fmt: skip
#: Age at which the figures of channels are asked for again, seconds.
CHANNELS_S: Final = 2.0
STORY_S: Final = 3.0
FINDINGS_S: Final = 5.0
GUARANTEES_S: Final = 10.0
STORY_ROWS: Final = 200


async def show(board: Board, request: Request) -> PageView:
    """The app with one of its tabs."""
    seen = await board.see()
    name = request.path_params["app"]
    status = seen.app(name)
    tab = request.query_params.get("tab", TABS[0])
    if tab not in TABS:
        raise MeshError("MESH-A404", "the app's page has no such tab")
    failed = await board.service.events.failed_counts()
    whole = summary(status, failed.get(name, 0))
    values: JsonObject = {
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
        "fork_of": fork_of(board, name),
    }
    return PageView("app.html", {**values, **await _of_tab(board, seen, request, tab)})


def fork_of(board: Board, name: str) -> str:
    """The app that an app is a fork of, if the user may see it; empty for none."""
    record = board.service.record(name)
    origin = record.fork if record is not None else None
    return origin.app if origin is not None and sees(Permission.APPS_VIEW, origin.app) else ""


async def _of_tab(board: Board, seen: Seen, request: Request, tab: str) -> JsonObject:
    name, service = request.path_params["app"], board.service
    match tab:
        case "graph":
            drawing = await service.plan_view(name, "drawing")
            channels = await channels_of(board, name)
            groups = groups_of(seen.app(name), seen)
            cells = cells_of(drawing, name, groups, {c.subject: c for c in channels})
            view = {"drawing": drawing, "cells": cells, "channels": channels}
            return {**view, **await _charts(board, seen, request, "app", name)}
        case "instances":
            group = request.query_params.get("group", "")
            chosen = [i for i in seen.app(name).instances if group in ("", i.group)]
            kind, of = ("group", f"{name}/{group}") if group else ("app", name)
            charts = await _charts(board, seen, request, kind, of)
            rows = [(i, seen.flow(i.instance)) for i in chosen]
            return {"group": group, "instances": rows, **charts}
        case "elements":
            return {"elements": (await service.plan_view(name, "elements"))["elements"]}
        case "text":
            return {"text": (await service.app(name)).text}
        case "guarantees":
            return await guarantees_of(board, name)
        case "checks":
            return {"findings": await findings_of(board, name)}
        case "backups":
            return {"backups": list(reversed(await service.backups.list_all(name)))}
        case "errors":
            require(request, Permission.DATA_READ, name)
            entries = await service.events.failed(name, ERRORS_SHOWN)
            count = await service.events.failed_count(name)
            return {"entries": [whole_entry(one) for one in reversed(entries)], "count": count}
        case _:
            return {"entries": await story_of(board, name)}


async def _charts(board: Board, seen: Seen, request: Request, kind: str, name: str) -> JsonObject:
    """The values of a page with charts."""
    window = chart_time(request.query_params, seen.at_ms // 1000)
    charts = await charts_of(board, kind, name, window)
    return {"charts": charts, "window": window, "spans": SPANS}


async def channels_of(board: Board, app: str) -> Any:
    """The channels of an app, as one request in two seconds gets them."""
    return await board.cached(
        ("channels", app), CHANNELS_S, lambda: board.service.streams.states(app)
    )


async def findings_of(board: Board, app: str) -> object:
    """Faults and risks of what NATS stores of an app."""
    return await board.cached(
        ("findings", app), FINDINGS_S, lambda: board.service.verification.verify(app)
    )


async def guarantees_of(board: Board, app: str) -> JsonObject:
    """The audit of an app, and its rows by place and failure; a place may lack some failures."""
    audit = await board.cached(
        ("guarantees", app), GUARANTEES_S, lambda: board.service.guarantees.of_app(app)
    )
    places: dict[tuple[str, str], JsonObject] = {}
    for row in audit.rows:
        places.setdefault((row.place.value, row.name), {})[row.failure.value] = row
    return {"held": audit, "places": places, "failures": [one.value for one in Failure]}


async def story_of(board: Board, app: str) -> Any:
    """The story of an app, the newest entry first."""
    entries = await board.cached(("story", app), STORY_S, lambda: board.service.story(app))
    return list(reversed(entries))[:STORY_ROWS]


async def act(frame: PageFrame, request: Request) -> Response:
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
        case "promote":
            origin = service.promotions.app_of(name)
            require(request, Permission.APPS_MANAGE, origin)
            done = await service.promotions.promote(name, by=by)
            return frame.done(f"/apps/{done.app}?done=promoted")
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


async def instance(board: Board, request: Request) -> PageView:
    """The page of an instance."""
    seen = await board.see()
    name, instance_id = request.path_params["app"], request.path_params["instance"]
    status = seen.app(name)
    one = next((i for i in status.instances if i.instance == instance_id), None)
    if one is None:
        raise MeshError("MESH-A404", f'app "{name}" has no instance "{instance_id}"')
    entries = [e for e in await story_of(board, name) if e.instance == instance_id]
    node = next((n for n in seen.nodes if n.id == one.worker), None)
    values = {"seen": seen, "app": status, "one": one, "flow": seen.flow(instance_id), "node": node}
    is_alone = sum(i.group == one.group for i in status.instances) == 1
    kind, of = ("group", f"{name}/{one.group}") if is_alone else ("instance", instance_id)
    charts = await _charts(board, seen, request, kind, of)
    values |= {"recent": seen.recent(kind, of), "entries": entries}
    return PageView("instance.html", {**values, **charts})
