"""Routes of the REST API: requests to calls of the service, results and errors to JSON.

    POST   /siddhi-apps                 201 and Location, 200 when it runs already, 400, 409;
                                        ?from=earliest, latest, a sequence or a time; ?name=
                                        of a text that has none, here and below
    PUT    /siddhi-apps                 201; 200, also for a running app that continues; 409
                                        when that loses what ?reset=GROUP or ?replace=true gives up
    GET    /siddhi-apps                 names, ?isActive=true of those that run; ?details=true
    GET    /siddhi-apps/{app}           {"content": text, "streams": {..}}
    GET    /siddhi-apps/{app}/status    ?wait=running&timeout=30 answers when it runs, or in time
    GET    /siddhi-apps/{app}/story     what happened to it and why, also after it was undeployed
    GET    /siddhi-apps/{app}/verification  faults and risks of what NATS stores of it
    GET    /siddhi-apps/{app}/guarantees  what holds on this cluster through which failures
    GET    /siddhi-apps/{app}/errors    ?limit=100, the last events that could not be read
    POST   /siddhi-apps/plan            the plan and the changes of a text, which is not deployed
    POST   /siddhi-apps/what-if         the needs of a text at a rate, measured
    POST   /siddhi-apps/check           its sources and sinks, each opened where it would run
    PUT    /siddhi-apps/{app}           pauses an app that runs, resumes one that is paused;
                                        ?active=true or false says which
    POST   /siddhi-apps/{app}/scale     ?group=g&parallel=4, the status; 422 where it can't be
    DELETE /siddhi-apps/{app}           200
    POST   /nodes/{node}/cordon         it gets nothing new; /uncordon ends that, /drain empties it
    GET    /health, /health/live        200; these and the next need no user
    GET    /health/ready                200, or 503 with the reasons

Routes of the cluster are in ``mesh.api.monitoring``, of failed events and tests in
``mesh.api.events`` and ``mesh.api.error_entries``, of backups in ``mesh.api.backups``, of queries
in ``mesh.api.queries``.  An error is ``{"code", "message"}`` with ``detail``, ``hint`` and
``position`` where there are any.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from mesh.api.accounts import AccountRoutes
from mesh.api.auth import SECURITY_HEADERS, Guard
from mesh.api.backups import BackupRoutes
from mesh.api.error_entries import ErrorEntryRoutes
from mesh.api.events import EventRoutes
from mesh.api.logins import LoginRoutes
from mesh.api.monitoring import Monitoring
from mesh.api.openapi import openapi
from mesh.api.originals import Originals
from mesh.api.paths import route
from mesh.api.queries import QueryRoutes
from mesh.api.responses import (
    Json,
    app_text,
    error_type,
    number,
    parameter,
    user_of,
    values_of,
    with_status,
)
from mesh.api.scim import ScimRoutes
from mesh.api.secrets import SecretRoutes
from mesh.api.timeline import TimeRoutes
from mesh.api.visible import VisibleService, require_for_text
from mesh.errors import MeshError, MeshErrors
from mesh.jetstream.refusals import NATS_ERRORS, unreachable
from mesh.logs import fields
from mesh.model.access import Permission
from mesh.model.begin import parse_start_position

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from mesh.api.auth import Access
    from mesh.manager.service import ManagerService

log = logging.getLogger(__name__)

WAIT_S_MAX: Final = 300.0
ERRORS_MAX: Final = 1000
#: Statuses of texts that this cluster can't have.
REFUSALS: Final = {
    # A running app can't have another text.
    "MESH-C120": HTTPStatus.CONFLICT,
    "MESH-C121": HTTPStatus.CONFLICT,
    "MESH-C122": HTTPStatus.BAD_REQUEST,
    "MESH-C123": HTTPStatus.CONFLICT,
    "MESH-C125": HTTPStatus.CONFLICT,
    "MESH-C150": HTTPStatus.BAD_REQUEST,
    "MESH-C151": HTTPStatus.BAD_REQUEST,
    "MESH-C152": HTTPStatus.CONFLICT,
    "MESH-C154": HTTPStatus.CONFLICT,
    "MESH-C153": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "MESH-C160": HTTPStatus.BAD_REQUEST,
    "MESH-C161": HTTPStatus.BAD_REQUEST,
    "MESH-C170": HTTPStatus.UNPROCESSABLE_ENTITY,
    "MESH-C171": HTTPStatus.BAD_REQUEST,
    "MESH-S131": HTTPStatus.FORBIDDEN,
    "MESH-O110": HTTPStatus.BAD_REQUEST,
    "MESH-O111": HTTPStatus.CONFLICT,
}
#: Orders for a worker, and its admission then.
ORDERS: Final = {"cordon": "cordoned", "uncordon": "open", "drain": "draining"}


def make_app(service: ManagerService, access: Access) -> Starlette:
    """The ASGI application over ``service``, for the users of ``access``."""
    service = cast("ManagerService", VisibleService(service))
    routes = Routes(service)
    made = Starlette(
        routes=[
            *Monitoring(service).routes(),
            *Originals(service).routes(),
            *ErrorEntryRoutes(service).routes(),
            *EventRoutes(service).routes(),
            *BackupRoutes(service).routes(),
            *TimeRoutes(service).routes(),
            *QueryRoutes(service).routes(),
            *AccountRoutes(access).routes(),
            *LoginRoutes(access).routes(),
            *SecretRoutes(access).routes(),
            *ScimRoutes(access).routes(),
            route("/openapi.json", openapi, "GET"),
            route("/siddhi-apps", routes.apps, "GET"),
            route("/siddhi-apps", routes.deploy, "POST"),
            route("/siddhi-apps", routes.update, "PUT"),
            route("/siddhi-apps/plan", routes.preview, "POST"),
            route("/siddhi-apps/what-if", routes.what_if, "POST"),
            route("/siddhi-apps/check", routes.check, "POST"),
            route("/siddhi-apps/{app}", routes.app, "GET"),
            route("/siddhi-apps/{app}", routes.switch, "PUT"),
            route("/siddhi-apps/{app}", routes.undeploy, "DELETE"),
            route("/siddhi-apps/{app}/status", routes.status, "GET"),
            route("/siddhi-apps/{app}/scale", routes.scale, "POST"),
            route("/siddhi-apps/{app}/story", routes.story, "GET"),
            route("/siddhi-apps/{app}/verification", routes.verification, "GET"),
            route("/siddhi-apps/{app}/guarantees", routes.guarantees, "GET"),
            route("/siddhi-apps/{app}/errors", routes.errors, "GET"),
            route("/nodes/{node}/{order}", routes.order_node, "POST"),
            route("/health", routes.health, "GET"),
            route("/health/live", routes.health, "GET"),
            route("/health/ready", routes.ready, "GET"),
        ],
        middleware=[Middleware(Guard, access=access)],
        exception_handlers={
            MeshError: _refuse,
            HTTPException: _refuse_http,
            **dict.fromkeys(NATS_ERRORS, _refuse_unreachable),
            Exception: _fail,
        },
    )
    made.state.service = service
    return made


class Routes:
    """Routes of apps and node orders, one method each."""

    def __init__(self, service: ManagerService) -> None:
        self._service = service

    async def deploy(self, request: Request) -> Response:
        """Deploy the text of the body."""
        text = await app_text(request)
        await require_for_text(self._service, Permission.APPS_MANAGE, text)
        begin = parse_start_position(request.query_params.get("from", "earliest"))
        done = await self._service.deploy(text, by=user_of(request), begin=begin)
        status = HTTPStatus.CREATED if done.is_new else HTTPStatus.OK
        return Json(_deployed(done), status, headers={"Location": f"/siddhi-apps/{done.app}"})

    async def update(self, request: Request) -> Response:
        """Deploy the text of the body in place of the app of its name."""
        text = await app_text(request)
        await require_for_text(self._service, Permission.APPS_MANAGE, text)
        replace = request.query_params.get("replace", "false")
        if replace not in ("true", "false"):
            raise parameter("replace", replace, "true or false")
        done = await self._service.update(
            text,
            by=user_of(request),
            replace=replace == "true",
            reset=request.query_params.getlist("reset"),
            begin=parse_start_position(request.query_params.get("from", "earliest")),
        )
        status = HTTPStatus.CREATED if done.is_new else HTTPStatus.OK
        return Json(_deployed(done), status, headers={"Location": f"/siddhi-apps/{done.app}"})

    async def preview(self, request: Request) -> Response:
        """The plan of the text of the body, and the changes to the app of its name."""
        text, reset = await app_text(request), request.query_params.getlist("reset")
        await require_for_text(self._service, Permission.APPS_MANAGE, text)
        return Json(await self._service.preview(text, reset=reset))

    async def what_if(self, request: Request) -> Response:
        """The needs of the text of the body at a rate."""
        text, asked = await app_text(request), request.query_params
        await require_for_text(self._service, Permission.APPS_MANAGE, text)
        keys = round(number(request, "keys", 1000, 1e9))
        cores = round(number(request, "cores", 0, 1024))
        rates = asked.getlist("at_rate")
        return Json(await self._service.what_ifs.what_if(text, rates, keys, cores))

    async def check(self, request: Request) -> Response:
        """Open each source and sink of the text of the body where it would run, and a sample."""
        text = await app_text(request)
        await require_for_text(self._service, Permission.APPS_MANAGE, text)
        return Json(await self._service.check(text))

    async def switch(self, request: Request) -> Response:
        """Pause an app, or resume it if it is paused."""
        name, by = request.path_params["app"], user_of(request)
        active = request.query_params.get("active")
        if active is None:
            state = values_of(await self._service.status(name)).get("state")
            active = "true" if state == "paused" else "false"
        if active not in ("true", "false"):
            raise parameter("active", active, "true or false")
        if active == "true":
            return Json(with_status(await self._service.resume(name, by=by)))
        return Json(with_status(await self._service.pause(name, by=by)))

    async def scale(self, request: Request) -> Response:
        """Have another number of instances of a group."""
        given = request.query_params
        parallel, group = given.get("parallel", ""), given.get("group", "")
        if not (parallel.isascii() and parallel.isdigit() and len(parallel) < 6):
            raise parameter("parallel", parallel, "a whole number")
        by = user_of(request)
        name = request.path_params["app"]
        return Json(with_status(await self._service.scale(name, group, int(parallel), by=by)))

    async def undeploy(self, request: Request) -> Response:
        """Remove an app with its channels and its state."""
        name = request.path_params["app"]
        await self._service.undeploy(name, by=user_of(request))
        return Json({"app": name, "type": "success", "message": f'app "{name}" is being removed'})

    async def apps(self, request: Request) -> Response:
        """Names of apps, with ``isActive`` of those that run, or don't; ``details`` has states."""
        found = await self._service.apps()
        is_active = request.query_params.get("isActive")
        if request.query_params.get("details") == "true":
            return Json([with_status(app) for app in found])
        if is_active is None:
            return Json([app.app for app in found])
        if is_active.lower() not in ("true", "false"):
            raise parameter("isActive", is_active, "true or false")
        told = [with_status(app) for app in found]
        wanted = is_active.lower() == "true"
        return Json([app["app"] for app in told if (app["status"] == "active") == wanted])

    async def app(self, request: Request) -> Response:
        """One app's text and the streams that clients can publish or read."""
        spec = await self._service.app(request.path_params["app"])
        streams = {
            channel.stream.name: {a.name: a.type for a in channel.stream.attributes}
            for channel in spec.channels
        }
        return Json({"content": spec.text, "streams": streams})

    async def status(self, request: Request) -> Response:
        """The state of one app and its instances, at once or when it runs."""
        name = request.path_params["app"]
        wait = request.query_params.get("wait")
        if wait is None:
            return Json(with_status(await self._service.status(name)))
        if wait != "running":
            raise parameter("wait", wait, "running")
        timeout_s = number(request, "timeout", 30.0, WAIT_S_MAX)
        return Json(with_status(await self._service.wait_running(name, timeout_s)))

    async def verification(self, request: Request) -> Response:
        """Faults and risks of an app, from what NATS stores of it now."""
        app = request.path_params["app"]
        found = values_of(await self._service.verification.verify(app))
        faults = sum(one["severity"] == "fault" for one in found)
        counts = {"faults": faults, "risks": len(found) - faults}
        return Json({"app": app, **counts, "findings": found})

    async def guarantees(self, request: Request) -> Response:
        """The guarantees of an app through failures, by channel, state, source and sink."""
        return Json(await self._service.guarantees.of_app(request.path_params["app"]))

    async def story(self, request: Request) -> Response:
        """The journal of one app, in order."""
        return Json(await self._service.story(request.path_params["app"]))

    async def errors(self, request: Request) -> Response:
        """The last events of one app that could not be read, oldest first."""
        limit = int(number(request, "limit", 100, ERRORS_MAX))
        return Json(await self._service.events.failed(request.path_params["app"], limit))

    async def health(self, request: Request) -> Response:
        """Show that the process answers and can reach NATS again; no user is needed."""
        if self._service.is_live():
            return Json({"status": "up"})
        return Json({"status": "down"}, HTTPStatus.SERVICE_UNAVAILABLE)

    async def ready(self, request: Request) -> Response:
        """Whether this manager can serve: NATS is reached, and its view is fresh."""
        reasons = self._service.unready_reasons()
        values = {"status": "not ready" if reasons else "ready", "reasons": list(reasons)}
        return Json(values, HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK)

    async def order_node(self, request: Request) -> Response:
        """Cordon, uncordon or drain a worker."""
        order = request.path_params["order"]
        if order not in ORDERS:
            raise MeshError(
                "MESH-A404",
                f'"{order}" is no order for a worker',
                detail=f"Orders are: {', '.join(ORDERS)}.",
            )
        by = user_of(request)
        name = request.path_params["node"]
        return Json(await self._service.order_node(name, ORDERS[order], by=by))


def _deployed(done: Any) -> dict[str, Any]:
    """The answer to a deploy, with the keys of the system before this one."""
    told = "deployed" if done.is_new else "is up to date"
    values: dict[str, Any] = values_of(done)
    return {"type": "success", "message": f'app "{done.app}" {told}', **values}


def status_of(error: MeshError) -> int:
    """The HTTP status of an error, by its code.

    Faults of the text are the caller's (400), and so are missing streams;
    ``MESH-A4xx`` and ``MESH-A5xx`` carry their status; NATS out of reach is 503, any other fault of
    the manager 500.
    """
    kind, number = error.code[5:6], error.code[6:]
    if kind == "A" and number.startswith(("4", "5")):
        return int(number)
    if error.code in REFUSALS:
        return REFUSALS[error.code]
    if kind in ("L", "P") or error.code in ("MESH-N121", "MESH-N122"):
        return HTTPStatus.BAD_REQUEST
    return HTTPStatus.SERVICE_UNAVAILABLE if kind == "N" else HTTPStatus.INTERNAL_SERVER_ERROR


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, MeshError)
    status = status_of(error)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.warning("request failed", extra=fields(path=request.url.path, error=str(error)))
    soon = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
    headers = {"Retry-After": "1"} if status in soon else None
    values = {**error.to_dict(), "type": error_type(status)}
    if isinstance(error, MeshErrors):
        values["errors"] = [one.to_dict() for one in error.errors]
    return Json(values, status, headers=headers)


async def _refuse_unreachable(request: Request, error: Exception) -> Response:
    return await _refuse(request, unreachable(error))


async def _refuse_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    values = {"code": f"MESH-A{error.status_code}", "message": error.detail.lower()}
    values["type"] = error_type(error.status_code)
    return Json(values, error.status_code, headers=error.headers)


async def _fail(request: Request, error: Exception) -> Response:
    # Starlette's outermost layer, beyond the guard, calls this and raises the error again, for
    # uvicorn to log.
    headers = {name.decode(): value.decode() for name, value in SECURITY_HEADERS}
    return Json(
        {
            "code": "MESH-A500",
            "type": error_type(HTTPStatus.INTERNAL_SERVER_ERROR),
            "message": "internal error",
            "detail": "The manager's log says more.",
        },
        HTTPStatus.INTERNAL_SERVER_ERROR,
        headers,
    )
