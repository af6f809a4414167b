"""The permission that each route of the REST API needs, from the table of operations.

A route that is not in this table is reached by no user: the guard answers 404 before it
(``mesh.api.auth``), and a test names it.
"""

from __future__ import annotations

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
            is_any_app = _BY_ROUTE[route].about is not About.PATH
            best = len(fits), Needed(route, permission, fits.get("app"), is_any_app)
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
