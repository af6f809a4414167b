"""The OpenAPI document of the REST API, made from its routes.

Paths, methods and names of parameters are those of the routes; summaries are the first lines of
the handlers' docstrings; the permission of each is that of the table which the guard uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import mesh
from mesh.api.auth import OPEN_PATHS
from mesh.api.permissions import ROUTES, SIGN_IN, template
from mesh.api.responses import Json
from mesh.model import names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

_TEXT: Final[dict[str, Any]] = {"type": "string"}
#: Schemas of parameters of paths.
_PATH: Final[dict[str, dict[str, Any]]] = {
    "app": {"type": "string", "pattern": f"^{names.APP_NAME}$"},
    "id": {"type": "integer", "minimum": 0, "maximum": 10**18 - 1},
    "sequence": {"type": "integer", "minimum": 0, "maximum": 10**18 - 1},
    "order": {"enum": ["cordon", "uncordon", "drain"]},
    "secret": {"type": "string", "pattern": "^[a-z][a-z0-9_.-]{0,63}$"},
    "file": {"type": "string", "pattern": r"^[A-Za-z0-9_-][A-Za-z0-9 ._-]{0,80}\.csv$"},
}
_BOOL: Final[dict[str, Any]] = {"enum": ["true", "false"]}
_COUNT: Final[dict[str, Any]] = {"type": "integer", "minimum": 0, "maximum": 1000}
#: Schemas of parameters of the query, by route.
_QUERY: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "GET /siddhi-apps": {"isActive": _BOOL},
    "POST /siddhi-apps": {"from": _TEXT, "name": _TEXT},
    "PUT /siddhi-apps": {"from": _TEXT, "name": _TEXT, "replace": _BOOL, "reset": _TEXT},
    "POST /siddhi-apps/plan": {"name": _TEXT, "reset": _TEXT},
    "POST /siddhi-apps/what-if": {
        "at_rate": _TEXT, "cores": _COUNT, "keys": _COUNT, "name": _TEXT,
    },
    "POST /siddhi-apps/check": {"name": _TEXT},
    "PUT /siddhi-apps/{app}": {"active": _BOOL},
    "GET /siddhi-apps/{app}/status": {"wait": {"enum": ["running"]}, "timeout": _COUNT},
    "GET /siddhi-apps/{app}/plan": {"output": {"enum": ["json", "svg", "dot"]}},
    "GET /siddhi-apps/{app}/errors": {"limit": _COUNT},
    "POST /siddhi-apps/{app}/scale": {"group": _TEXT, "parallel": _COUNT},
    "POST /siddhi-apps/{app}/restore": {
        "revision": _TEXT, "before": _TEXT, "as": _TEXT, "replay": _BOOL,
    },
    "POST /siddhi-apps/{app}/fork": {"as": _TEXT, "from": _TEXT, "until": _TEXT, "sinks": _BOOL},
    "POST /siddhi-apps/backfill": {
        "name": _TEXT, "path": _TEXT, "stream": _TEXT, "time": _TEXT, "until": _TEXT,
    },
    "GET /siddhi-apps/{app}/why/{stream}/{sequence}": {"index": _COUNT},
    "POST /siddhi-apps/{app}/promote": {"replaces": _TEXT},
    "GET /siddhi-apps/{app}/compare/{other}": {"stream": _TEXT, "key": _TEXT},
    "GET /error-handler/{app}": {"limit": _COUNT, "before": _COUNT},
    "DELETE /error-handler/{app}": {"all": _BOOL, "olderThan": _COUNT},
    "POST /simulation/feed/{feed}": {"action": {"enum": ["run", "pause", "resume", "stop"]}},
    "GET /history": {"app": _TEXT, "group": _TEXT, "node": _TEXT, "seconds": _COUNT},
    **{
        f"GET /scim/v2/{kind}": {
            "filter": _TEXT, "startIndex": _COUNT, "count": _COUNT, "sortBy": _TEXT,
            "attributes": _TEXT,
        }
        for kind in ("Users", "Groups")
    },
    "PUT /secrets/{secret}": {"apps": _TEXT},
    "GET /audit": {"limit": _COUNT, "user": _TEXT},
}  # fmt: skip
_OBJECT: Final[dict[str, Any]] = {"type": "object"}
_SCIM: Final = ("application/scim+json", _OBJECT)


def _object(required: tuple[str, ...], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties}


_WORDS: Final[dict[str, Any]] = {"type": "array", "items": _TEXT}
_EVENT: Final = _object(
    ("siddhiAppName", "streamName", "data"),
    siddhiAppName=_TEXT, streamName=_TEXT, data={"type": "array"}, timestamp={"type": "integer"},
)  # fmt: skip
_FEED: Final = _object(
    ("properties", "sources"), properties=_OBJECT, sources={"type": "array", "items": _OBJECT}
)
_FILE: Final = _object(("file",), file={"type": "string", "format": "binary"})
_PROVISIONED: Final = {
    f"{method} /scim/v2/{kind}{rest}": _SCIM
    for kind in ("Users", "Groups")
    for method, rest in (
        ("POST", ""), ("POST", "/.search"), ("PUT", "/{resource}"), ("PATCH", "/{resource}"),
    )
}  # fmt: skip
#: Media types and schemas of bodies, by route.
_BODIES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    **_PROVISIONED,
    "POST /scim/v2/.search": _SCIM,
    "POST /siddhi-apps": ("text/plain", _TEXT),
    "PUT /siddhi-apps": ("text/plain", _TEXT),
    "POST /siddhi-apps/plan": ("text/plain", _TEXT),
    "POST /siddhi-apps/what-if": ("text/plain", _TEXT),
    "POST /siddhi-apps/{app}/fork": ("text/plain", _TEXT),
    "POST /siddhi-apps/backfill": ("text/plain", _TEXT),
    "POST /siddhi-apps/check": ("text/plain", _TEXT),
    "PUT /secrets/{secret}": ("text/plain", _TEXT),
    "POST /error-handler/{app}/replay": ("application/json", _OBJECT),
    "POST /simulation/single": ("application/json", _EVENT),
    "POST /simulation/feed": (
        "application/json", {"anyOf": [{"type": "array", "items": _EVENT}, _FEED]}
    ),
    "PUT /simulation/feed/{feed}": ("application/json", _FEED),
    "POST /simulation/files": ("multipart/form-data", _FILE),
    "PUT /simulation/files/{file}": ("multipart/form-data", _FILE),
    "POST /stores/query": (
        "application/json", _object(("appName", "query"), appName=_TEXT, query=_TEXT)
    ),
    SIGN_IN: (
        "application/x-www-form-urlencoded",
        _object(("grantType",), grantType=_TEXT, username=_TEXT, password=_TEXT),
    ),
    "POST /users": (
        "application/json",
        _object(("name", "password", "may"), name=_TEXT, password=_TEXT, may=_WORDS, apps=_TEXT),
    ),
    "POST /tokens": (
        "application/json",
        _object(("name",), name=_TEXT, days={"type": "integer"}, may=_WORDS, apps=_TEXT),
    ),
}  # fmt: skip
_ERROR: Final = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {name: {"type": "string"} for name in ("code", "message", "detail", "hint")},
}


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The document of these routes."""
    paths: dict[str, dict[str, Any]] = {}
    for one in routes:
        path = template(one.path)
        for method in sorted((one.methods or set()) - {"HEAD"}):
            paths.setdefault(path, {})[method.lower()] = _operation(one, method, path)
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


def _operation(route: Route, method: str, path: str) -> dict[str, Any]:
    key = f"{method} {path}"
    permission = ROUTES.get(key)
    lines = (route.endpoint.__doc__ or "").strip().splitlines() or [""]
    is_open = path in OPEN_PATHS or key == SIGN_IN
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _PATH.get(name, _TEXT)}
        for name in route.param_convertors
    ]
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in _QUERY.get(key, {}).items()
    ]
    error = {"schema": {"$ref": "#/components/schemas/Error"}}
    made: dict[str, Any] = {
        "operationId": key,
        "summary": lines[0],
        "description": "" if is_open else f"Permission: {permission or 'any user'}.",
        "parameters": parameters,
        "security": [] if is_open else [{"password": []}, {"token": []}],
        "responses": {
            "2XX": {"description": "The answer."},
            "default": {"description": "An error.", "content": {"application/json": error}},
        },
    }
    if key in _BODIES:
        kind, schema = _BODIES[key]
        made["requestBody"] = {"required": True, "content": {kind: {"schema": schema}}}
    return made


async def openapi(request: Request) -> Response:
    """This document."""
    return Json(document(request.app.routes))
