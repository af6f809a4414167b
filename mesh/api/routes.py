"""The REST API: handlers of apps, of node orders and of probes, and errors as JSON.

``mesh.model.operations`` has the table of all operations; ``mesh.api.routing`` makes routes of it,
and ``docs/cli.md`` its list.  An error is ``{"code", "message"}`` with ``detail``, ``hint`` and
``position`` where there are any.

The OpenAPI document of the REST API, made from the table of operations.
"""

from __future__ import annotations

import functools
import logging
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

import mesh
from mesh.api.account_service import AccountRoutes, SecretRoutes
from mesh.api.auth import SECURITY_HEADERS, ApiGuard
from mesh.api.events import EventRoutes
from mesh.api.feeds import FeedRoutes
from mesh.api.logins import LoginRoutes
from mesh.api.monitoring import Monitoring
from mesh.api.originals import ErrorEntryRoutes, OriginalRoutes
from mesh.api.queries import PreviewRoutes, QueryRoutes
from mesh.api.routing import (
    Json,
    error_type,
    routes_of,
    serves,
    user_of,
    values_of,
    visible_apps,
    with_status,
)
from mesh.api.scim import ScimRoutes
from mesh.api.timeline import BackupRoutes, TimeRoutes
from mesh.errors import MeshError, MeshErrors
from mesh.files.whole_files import is_full
from mesh.jetstream.connection import NATS_ERRORS, unreachable
from mesh.model import names
from mesh.model.begin import parse_start_position
from mesh.model.operation import HIGH, ParameterPlace, Public, operations_of
from mesh.model.operations import SECTIONS, AppOperations, ClusterOperations, section_title
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from mesh.api.auth import Access
    from mesh.manager.service import ManagerService
    from mesh.model.app import AppSpec, Channel
    from mesh.model.operation import Operation
    from mesh.model.values import JsonObject

log = logging.getLogger(__name__)

#: Statuses of texts that this cluster can't have, and of values.
REFUSALS: Final = {
    "MESH-A101": HTTPStatus.UNPROCESSABLE_ENTITY,
    # A running app can't have another text.
    "MESH-C120": HTTPStatus.CONFLICT,
    "MESH-C121": HTTPStatus.CONFLICT,
    "MESH-C122": HTTPStatus.BAD_REQUEST,
    "MESH-C123": HTTPStatus.CONFLICT,
    "MESH-C124": HTTPStatus.CONFLICT,
    "MESH-C125": HTTPStatus.CONFLICT,
    # Resources that a node lacks, or does not open to connectors.
    "MESH-C131": HTTPStatus.BAD_REQUEST,
    "MESH-C132": HTTPStatus.BAD_REQUEST,
    "MESH-C134": HTTPStatus.BAD_REQUEST,
    "MESH-C135": HTTPStatus.FORBIDDEN,
    "MESH-C140": HTTPStatus.UNPROCESSABLE_ENTITY,
    "MESH-C141": HTTPStatus.UNPROCESSABLE_ENTITY,
    "MESH-C142": HTTPStatus.UNPROCESSABLE_ENTITY,
    "MESH-C150": HTTPStatus.BAD_REQUEST,
    "MESH-C151": HTTPStatus.BAD_REQUEST,
    "MESH-C152": HTTPStatus.CONFLICT,
    "MESH-C154": HTTPStatus.CONFLICT,
    "MESH-C153": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "MESH-C160": HTTPStatus.BAD_REQUEST,
    "MESH-C161": HTTPStatus.BAD_REQUEST,
    "MESH-C170": HTTPStatus.UNPROCESSABLE_ENTITY,
    "MESH-C171": HTTPStatus.BAD_REQUEST,
    "MESH-C172": HTTPStatus.UNPROCESSABLE_ENTITY,
    "MESH-S131": HTTPStatus.FORBIDDEN,
    # Tables of stores that do not fit.
    "MESH-S142": HTTPStatus.BAD_REQUEST,
    "MESH-S145": HTTPStatus.BAD_REQUEST,
    "MESH-S146": HTTPStatus.BAD_REQUEST,
    "MESH-O110": HTTPStatus.BAD_REQUEST,
    "MESH-O111": HTTPStatus.CONFLICT,
    # Events of a preview, and a text that fails on them.
    "MESH-U160": HTTPStatus.BAD_REQUEST,
    "MESH-U161": HTTPStatus.BAD_REQUEST,
    "MESH-U162": HTTPStatus.UNPROCESSABLE_ENTITY,
}
#: Orders for a worker, and its admission then.
ORDERS: Final = {"cordon": "cordoned", "uncordon": "open", "drain": "draining"}


def make_app(service: ManagerService, access: Access) -> Starlette:
    """The ASGI application over ``service``, for the users of ``access``."""
    parts = (
        AppRoutes(service), Monitoring(service), OriginalRoutes(service), EventRoutes(service),
        ErrorEntryRoutes(service), FeedRoutes(service), BackupRoutes(service),
        TimeRoutes(service), QueryRoutes(service), PreviewRoutes(service),
        AccountRoutes(access), LoginRoutes(access), SecretRoutes(access), ScimRoutes(access),
    )  # fmt: skip
    return Starlette(
        routes=routes_of(service, parts),
        middleware=[Middleware(ApiGuard, access=access)],
        exception_handlers={
            MeshError: _refuse,
            HTTPException: _refuse_http,
            **dict.fromkeys(NATS_ERRORS, _refuse_unreachable),
            OSError: _refuse_full,
            Exception: _fail,
        },
    )


class AppRoutes:
    """Handlers of apps, node orders and probes."""

    def __init__(self, service: ManagerService) -> None:
        self._service = service

    @serves(AppOperations.create)
    async def create(self, request: Request, text: str, begin: str) -> Response:
        position = parse_start_position(begin)
        return _deployed(await self._service.deploy(text, by=user_of(request), begin=position))

    @serves(AppOperations.deploy)
    async def deploy(
        self, request: Request, text: str, begin: str, replace: bool, reset: list[str]
    ) -> Response:
        position = parse_start_position(begin)
        done = await self._service.update(
            text, by=user_of(request), replace=replace, reset=reset, begin=position
        )
        return _deployed(done)

    @serves(AppOperations.plan)
    async def plan(self, request: Request, text: str, reset: list[str]) -> object:
        return await self._service.preview(text, reset=reset)

    @serves(AppOperations.what_if)
    async def what_if(
        self, request: Request, text: str, at_rate: list[str], keys: int, cores: int
    ) -> object:
        return await self._service.what_ifs.what_if(text, at_rate, keys, cores)

    @serves(AppOperations.check)
    async def check(self, request: Request, text: str) -> object:
        return await self._service.check(text)

    @serves(AppOperations.switch)
    async def switch(self, request: Request, app: str, active: bool | None) -> object:
        if active is None:
            state = values_of(await self._service.status(app)).get("state")
            active = state == "paused"
        order = self._service.resume if active else self._service.pause
        return with_status(await order(app, by=user_of(request)))

    @serves(AppOperations.scale)
    async def scale(self, request: Request, app: str, group: str, parallel: int) -> object:
        return with_status(await self._service.scale(app, group, parallel, by=user_of(request)))

    @serves(AppOperations.undeploy)
    async def undeploy(self, request: Request, app: str) -> object:
        await self._service.undeploy(app, by=user_of(request))
        return {"app": app, "type": "success", "message": f'app "{app}" is being removed'}

    @serves(AppOperations.apps)
    async def apps(self, request: Request, details: bool, is_active: bool | None) -> object:
        statuses = [with_status(app) for app in await visible_apps(self._service)]
        if details:
            return statuses
        return [app["app"] for app in statuses if is_active in (None, app["status"] == "active")]

    @serves(AppOperations.app)
    async def app(self, request: Request, app: str) -> object:
        spec = await self._service.app(app)
        streams = {
            channel.stream.name: {a.name: a.type for a in channel.stream.attributes}
            for channel in spec.channels
        }
        return {"content": spec.text, "streams": streams}

    @serves(AppOperations.status)
    async def status(
        self, request: Request, app: str, wait: str | None, timeout_s: float
    ) -> object:
        if wait is None:
            return with_status(await self._service.status(app))
        return with_status(await self._service.wait_running(app, timeout_s))

    @serves(AppOperations.verify)
    async def verification(self, request: Request, app: str) -> object:
        findings = values_of(await self._service.verification.verify(app))
        faults = sum(one["severity"] == "fault" for one in findings)
        counts = {"faults": faults, "risks": len(findings) - faults}
        return {"app": app, **counts, "findings": findings}

    @serves(AppOperations.guarantees)
    async def guarantees(self, request: Request, app: str) -> object:
        return await self._service.guarantees.of_app(app)

    @serves(AppOperations.streams)
    async def streams(self, request: Request, app: str) -> object:
        spec = await self._service.app(app)
        states = {one.subject: values_of(one) for one in await self._service.streams.states(app)}
        # A stream that is divided by key and is also whole has several channels.
        channels = [spec.whole_channel(name) for name in {c.stream.name: 0 for c in spec.channels}]
        return [
            {
                "stream": channel.stream.name,
                "kind": _kind_of(spec, channel.stream.name),
                "attributes": {a.name: a.type for a in channel.stream.attributes},
                **states[channel.subject()],
                "subject": _subject_of(channel),
            }
            for channel in channels
            if channel is not None and channel.subject() in states
        ]

    @serves(AppOperations.endpoints)
    async def endpoints(self, request: Request, failing: bool) -> Any:
        return [
            {"app": app["app"], **{key: one[key] for key in ("instance", "worker")}, **connector}
            for app in values_of(await visible_apps(self._service))
            for one in app["instances"]
            for connector in one["connectors"]
            if not failing or connector["state"] != "running"
        ]

    @serves(AppOperations.story)
    async def story(self, request: Request, app: str) -> object:
        return await self._service.story(app)

    @serves(ClusterOperations.health)
    async def health(self, request: Request) -> object:
        if self._service.is_live():
            return {"status": "up"}
        return Json({"status": "down"}, HTTPStatus.SERVICE_UNAVAILABLE)

    @serves(ClusterOperations.ready)
    async def ready(self, request: Request) -> object:
        reasons = self._service.unready_reasons()
        values = {"status": "not ready" if reasons else "ready", "reasons": list(reasons)}
        return Json(values, HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK)

    @serves(ClusterOperations.order_node)
    async def order_node(self, request: Request, node: str, order: str) -> object:
        if order not in ORDERS:
            raise MeshError(
                "MESH-A404",
                f'"{order}" is no order for a worker',
                detail=f"Orders are: {', '.join(ORDERS)}.",
            )
        return await self._service.order_node(node, ORDERS[order], by=user_of(request))

    @serves(ClusterOperations.openapi)
    async def openapi(self, request: Request) -> object:
        return document()


def _kind_of(spec: AppSpec, stream: str) -> str:
    """``input`` from outside, ``output`` for outside, or ``inner`` between groups of the app."""
    if stream not in spec.computed_streams:
        return "input"
    read = {one.channel.stream.name for group in spec.groups for one in group.inputs}
    return "inner" if stream in read else "output"


def _subject_of(channel: Channel) -> str:
    """The subject of a stream's events, with a wildcard for the partitions of a key."""
    subject = channel.subject()
    return subject.removesuffix(".0") + ".*" if channel.is_keyed else subject


def _deployed(done: Any) -> Response:
    """The answer to a deploy, with the keys of the system before this one."""
    outcome = "deployed" if done.is_new else "is up to date"
    values = {"type": "success", "message": f'app "{done.app}" {outcome}', **values_of(done)}
    status = HTTPStatus.CREATED if done.is_new else HTTPStatus.OK
    return Json(values, status, headers={"Location": f"/siddhi-apps/{done.app}"})


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


async def _refuse_full(request: Request, error: Exception) -> Response:
    if not is_full(error):
        raise error
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


_TEXT: Final[JsonObject] = {"type": "string"}
#: Schemas of parameters of paths that are no plain texts.
_PATH: Final[dict[str, JsonObject]] = {
    "app": {"type": "string", "pattern": f"^{names.APP_NAME}$"},
    "id": {"type": "integer", "minimum": 0, "maximum": HIGH},
    "sequence": {"type": "integer", "minimum": 0, "maximum": HIGH},
    "order": {"enum": ["cordon", "uncordon", "drain"]},
    "secret": {"type": "string", "pattern": "^[a-z][a-z0-9_.-]{0,63}$"},
    "file": {"type": "string", "pattern": r"^[A-Za-z0-9_-][A-Za-z0-9 ._-]{0,80}\.csv$"},
}
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_ERROR: Final = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {name: {"type": "string"} for name in ("code", "message", "detail", "hint")},
}


@functools.cache
def document() -> JsonObject:
    """The document of all operations."""
    paths: dict[str, JsonObject] = {}
    for section in SECTIONS:
        for one in operations_of(section):
            for path in one.paths:
                operation = _operation(one, path) | {"tags": [section_title(section)]}
                paths.setdefault(path, {})[one.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "NATS event mesh", "version": mesh.__version__},
        "paths": dict(sorted(paths.items())),
        "components": {
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "token": {"type": "http", "scheme": "bearer"},
            },
            "schemas": {"Error": _ERROR},
        },
    }


def _operation(one: Operation[..., Any], path: str) -> JsonObject:
    is_open = isinstance(one.permission, Public)
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _PATH.get(name, _TEXT)}
        for name in _PARAMETER.findall(path)
    ]
    parameters += [
        {
            "name": parameter.name,
            "in": "query",
            "required": parameter.is_required,
            "schema": parameter.schema,
        }
        for parameter in one.parameters
        if parameter.place is ParameterPlace.QUERY
    ]
    answer: JsonObject = {"description": "The answer."}
    if one.answer_schema:
        answer["content"] = {"application/json": {"schema": one.answer_schema}}
    error = {"schema": {"$ref": "#/components/schemas/Error"}}
    entry: JsonObject = {
        "operationId": f"{one.method} {path}",
        "summary": one.summary,
        "description": "" if is_open else f"Permission: {one.permission or 'any user'}.",
        "parameters": parameters,
        "security": [] if is_open else [{"password": []}, {"token": []}],
        "responses": {
            "2XX": answer,
            "default": {"description": "An error.", "content": {"application/json": error}},
        },
    }
    if one.body is not None:
        kind, schema, is_required = one.body
        entry["requestBody"] = {"required": is_required, "content": {kind: {"schema": schema}}}
    return entry
