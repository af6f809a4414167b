"""The permission that each route of the REST API needs.

A route that is not in this table is reached by no user: the guard answers 404 before it
(``mesh.api.auth``), and a test names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mesh.model.access import Permission

#: For any user, whatever it may do: about itself.
ANY_USER: Final = None
#: The route that makes a user known: it is reached without one.
SIGN_IN: Final = "POST /login/{product}"
_VIEW, _MANAGE = Permission.APPS_VIEW, Permission.APPS_MANAGE
_READ, _WRITE = Permission.DATA_READ, Permission.DATA_WRITE
_MONITOR, _NODES, _ADMIN = Permission.MONITOR, Permission.NODES_MANAGE, Permission.ADMIN

ROUTES: Final[dict[str, Permission | None]] = {
    "GET /siddhi-apps": _VIEW,
    "POST /siddhi-apps": _MANAGE,
    "PUT /siddhi-apps": _MANAGE,
    "POST /siddhi-apps/plan": _MANAGE,
    "POST /siddhi-apps/what-if": _MANAGE,
    "POST /siddhi-apps/check": _MANAGE,
    "GET /siddhi-apps/statistics": _MONITOR,
    "PUT /siddhi-apps/statistics": _MANAGE,
    "GET /siddhi-apps/count": _VIEW,
    "GET /siddhi-apps/ha/is-active-node": _MONITOR,
    "GET /siddhi-apps/sources": _VIEW,
    "GET /siddhi-apps/sinks": _VIEW,
    "GET /siddhi-apps/queries": _VIEW,
    "GET /siddhi-apps/tables": _VIEW,
    "GET /siddhi-apps/windows": _VIEW,
    "GET /siddhi-apps/aggregations": _VIEW,
    "DELETE /siddhi-apps/revisions": _MANAGE,
    "GET /siddhi-apps/{app}": _VIEW,
    "PUT /siddhi-apps/{app}": _MANAGE,
    "DELETE /siddhi-apps/{app}": _MANAGE,
    "GET /siddhi-apps/{app}/isExists": _VIEW,
    "PUT /siddhi-apps/{app}/statistics": _MANAGE,
    "GET /siddhi-apps/{app}/status": _VIEW,
    "GET /siddhi-apps/{app}/story": _VIEW,
    "GET /siddhi-apps/{app}/verification": _VIEW,
    "GET /siddhi-apps/{app}/guarantees": _VIEW,
    "GET /siddhi-apps/{app}/elements": _VIEW,
    "GET /siddhi-apps/{app}/plan": _VIEW,
    "GET /siddhi-apps/{app}/errors": _READ,
    "POST /siddhi-apps/{app}/scale": _MANAGE,
    "POST /siddhi-apps/{app}/backup": _MANAGE,
    "POST /siddhi-apps/{app}/restore": _MANAGE,
    "POST /siddhi-apps/{app}/fork": _MANAGE,
    "POST /siddhi-apps/backfill": _MANAGE,
    "POST /siddhi-apps/{app}/promote": _MANAGE,
    "GET /siddhi-apps/{app}/why/{stream}/{sequence}": _READ,
    "GET /siddhi-apps/{app}/compare/{other}": _READ,
    "GET /siddhi-apps/{app}/revisions": _VIEW,
    "DELETE /siddhi-apps/{app}/revisions": _MANAGE,
    "DELETE /siddhi-apps/{app}/revisions/{revision}": _MANAGE,
    "GET /error-handler": _VIEW,
    "GET /error-handler/error-entries/count": _READ,
    "GET /error-handler/error-entries": _READ,
    "POST /error-handler/error-entries": _WRITE,
    "DELETE /error-handler/error-entries": _WRITE,
    "GET /error-handler/error-entries/{id}": _READ,
    "DELETE /error-handler/error-entries/{id}": _WRITE,
    "GET /error-handler/{app}": _READ,
    "GET /error-handler/{app}/{id}": _READ,
    "POST /error-handler/{app}/replay": _WRITE,
    "DELETE /error-handler/{app}": _WRITE,
    "DELETE /error-handler/{app}/{id}": _WRITE,
    "POST /simulation/single": _WRITE,
    "POST /simulation/feed": _WRITE,
    "GET /simulation/feed": _VIEW,
    "GET /simulation/feed/{feed}": _VIEW,
    "PUT /simulation/feed/{feed}": _WRITE,
    "POST /simulation/feed/{feed}": _WRITE,
    "DELETE /simulation/feed/{feed}": _WRITE,
    "GET /simulation/feed/{feed}/status": _VIEW,
    "GET /simulation/files": _VIEW,
    "POST /simulation/files": _WRITE,
    "PUT /simulation/files/{file}": _WRITE,
    "DELETE /simulation/files/{file}": _WRITE,
    "POST /stores/query": _READ,
    "POST /stores/initAgg": _READ,
    "GET /managers": _MONITOR,
    "GET /managers/kafkaDetails/{app}": _VIEW,
    "GET /managers/roles": ANY_USER,
    "GET /statistics": _MONITOR,
    "GET /system-details": _MONITOR,
    SIGN_IN: ANY_USER,
    "POST /logout/{product}": ANY_USER,
    "GET /permissions/app/{product}": _ADMIN,
    "GET /permissions/{permission}/roles": _ADMIN,
    "GET /permissions/auth/{permission}/{role}": _ADMIN,
    "GET /managers/isActive": _MONITOR,
    "GET /managers/siddhi-apps": _VIEW,
    "GET /managers/siddhi-apps/{app}": _VIEW,
    "GET /managers/siddhi-apps-execution/{app}": _VIEW,
    "GET /resourceClusterWorkers": _MONITOR,
    "GET /resourceClusterWorkers/clusteredWorkerNodeDetails": _MONITOR,
    "GET /nodes": _MONITOR,
    "POST /nodes/{node}/{order}": _NODES,
    "GET /metrics": _MONITOR,
    "GET /overview": _MONITOR,
    "GET /history": _MONITOR,
    "GET /users": _ADMIN,
    "POST /users": _ADMIN,
    "DELETE /users/{user}": _ADMIN,
    "DELETE /users/{user}/sessions": _ADMIN,
    "GET /tokens": ANY_USER,
    "POST /tokens": ANY_USER,
    "DELETE /tokens/{token}": ANY_USER,
    "GET /me": ANY_USER,
    "GET /audit": _ADMIN,
    "GET /secrets": _ADMIN,
    "PUT /secrets/{secret}": _ADMIN,
    "DELETE /secrets/{secret}": _ADMIN,
    "GET /openapi.json": ANY_USER,
    "GET /scim/v2/ServiceProviderConfig": _ADMIN,
    "GET /scim/v2/ResourceTypes": _ADMIN,
    "GET /scim/v2/ResourceTypes/{kind}": _ADMIN,
    "GET /scim/v2/Schemas": _ADMIN,
    "GET /scim/v2/Schemas/{urn}": _ADMIN,
    "GET /scim/v2/Users": _ADMIN,
    "GET /scim/v2/Groups": _ADMIN,
    "POST /scim/v2/Users": _ADMIN,
    "POST /scim/v2/Users/.search": _ADMIN,
    "GET /scim/v2/Users/{resource}": _ADMIN,
    "PUT /scim/v2/Users/{resource}": _ADMIN,
    "PATCH /scim/v2/Users/{resource}": _ADMIN,
    "DELETE /scim/v2/Users/{resource}": _ADMIN,
    "POST /scim/v2/Groups": _ADMIN,
    "POST /scim/v2/Groups/.search": _ADMIN,
    "GET /scim/v2/Groups/{resource}": _ADMIN,
    "PUT /scim/v2/Groups/{resource}": _ADMIN,
    "PATCH /scim/v2/Groups/{resource}": _ADMIN,
    "DELETE /scim/v2/Groups/{resource}": _ADMIN,
    "POST /scim/v2/.search": _ADMIN,
    "GET /scim/v2/{unknown}": _ADMIN,
}
#: Routes whose answer lists the apps that the user may see, or whose body names the app: the
#: handler looks at it.
_OWN_CHECK: Final = frozenset(
    {
        "GET /siddhi-apps",
        "POST /siddhi-apps",
        "PUT /siddhi-apps",
        "POST /siddhi-apps/plan",
        "POST /siddhi-apps/what-if",
        "POST /siddhi-apps/check",
        "GET /siddhi-apps/statistics",
        "GET /siddhi-apps/count",
        "GET /siddhi-apps/sources",
        "GET /siddhi-apps/sinks",
        "GET /siddhi-apps/queries",
        "GET /siddhi-apps/tables",
        "GET /siddhi-apps/windows",
        "GET /siddhi-apps/aggregations",
        "GET /error-handler/error-entries/count",
        "GET /error-handler/error-entries",
        "POST /error-handler/error-entries",
        "DELETE /error-handler/error-entries",
        "GET /error-handler/error-entries/{id}",
        "DELETE /error-handler/error-entries/{id}",
        "GET /error-handler",
        "POST /simulation/single",
        "POST /simulation/feed",
        "GET /simulation/feed",
        "GET /simulation/feed/{feed}",
        "PUT /simulation/feed/{feed}",
        "POST /simulation/feed/{feed}",
        "DELETE /simulation/feed/{feed}",
        "GET /simulation/feed/{feed}/status",
        "POST /stores/query",
        "POST /stores/initAgg",
        "GET /managers/siddhi-apps",
    }
)


@dataclass(frozen=True, slots=True)
class Needed:
    """Permission that a request needs, and the app that it is about."""

    route: str
    permission: Permission | None
    #: The app of the path.
    app: str | None = None
    #: Whether the handler checks the app, and the permission for any app is enough before it.
    is_any_app: bool = False


def template(path: str) -> str:
    """The path of a route without the kinds of its parameters: ``{app:app_name}`` as ``{app}``."""
    parts = (part.partition(":")[0] + "}" if ":" in part else part for part in path.split("/"))
    return "/".join(parts)


def needed(method: str, path: str) -> Needed | None:
    """Permission and app of a request; None if no route of the table has this method and path."""
    wanted = "GET" if method == "HEAD" else method
    parts = path.split("/")
    best: tuple[int, Needed] | None = None
    for route, permission in ROUTES.items():
        own, _, pattern = route.partition(" ")
        if own != wanted:
            continue
        fits = _match(pattern.split("/"), parts)
        # A path of words comes before one with parameters.
        if fits is not None and (best is None or len(fits) < best[0]):
            made = Needed(route, permission, fits.get("app"), route in _OWN_CHECK)
            best = len(fits), made
    return best[1] if best is not None else None


def is_known(path: str) -> bool:
    """Whether the table has the path with any method."""
    parts = path.split("/")
    return any(_match(route.partition(" ")[2].split("/"), parts) is not None for route in ROUTES)


def _match(pattern: list[str], parts: list[str]) -> dict[str, str] | None:
    if len(pattern) != len(parts):
        return None
    found = {}
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted.startswith("{"):
            found[wanted.strip("{}")] = part
        elif wanted != part:
            return None
    return found
