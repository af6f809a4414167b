"""The permission that each route of the REST API needs, from the table of operations.

A route that is not in this table is reached by no user: the guard answers 404 before it
(``mesh.api.auth``), and a test names it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.model.operation import ANY_USER, About, Public
from mesh.model.operations import OPERATIONS

if TYPE_CHECKING:
    from mesh.model.access import Permission

_BY_ROUTE: Final = {key: one for one in OPERATIONS for key in one.keys}
#: Probes, and the identity provider to sign in at; they need no user and say nothing of apps and
#: nodes.
OPEN_PATHS: Final = frozenset(
    path for one in OPERATIONS if one.permission is Public.OPEN for path in one.paths
)
#: The route that makes a user known: it is reached without one.
(SIGN_IN,) = (key for key, one in _BY_ROUTE.items() if one.permission is Public.SIGN_IN)
#: Permissions of all routes that need a user, and of the sign-in.
ROUTES: Final[dict[str, Permission | None]] = {
    key: ANY_USER if isinstance(one.permission, Public) else one.permission
    for key, one in _BY_ROUTE.items()
    if one.permission is not Public.OPEN
}
#: Their paths as patterns; those of words come before those with parameters.
_PATTERNS: Final = [
    (key, re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]*)", re.escape(key.partition(" ")[2]))))
    for key in sorted(ROUTES, key=lambda key: key.count("{"))
]


@dataclass(frozen=True, slots=True)
class Needed:
    """Permission that a request needs, and the app that it is about."""

    route: str
    permission: Permission | None
    #: The app of the path.
    app: str | None = None
    #: Whether the handler checks the app, and the permission for any app is enough before it.
    is_any_app: bool = False


def needed(method: str, path: str) -> Needed | None:
    """Permission and app of a request; None if no route of the table has this method and path."""
    verb = "GET" if method == "HEAD" else method
    for route, pattern in _PATTERNS:
        if route.startswith(f"{verb} ") and (fits := pattern.fullmatch(path)):
            is_any_app = _BY_ROUTE[route].about is not About.PATH
            return Needed(route, ROUTES[route], fits.groupdict().get("app"), is_any_app)
    return None


def has_route(path: str) -> bool:
    """Whether the table has the path with any method."""
    return any(pattern.fullmatch(path) for _, pattern in _PATTERNS)
