"""The REST API for people: its OpenAPI document as a page, with a search and commands of curl."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mesh.api.openapi import document
from mesh.dashboard.rendering import View

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.routing import Route

#: Titles of groups, and the first parts of their paths; what is in none comes last.
_GROUPS: Final = (
    ("Apps", ("siddhi-apps",)),
    ("Queries", ("stores",)),
    ("Failed events", ("error-handler",)),
    ("Simulations", ("simulation",)),
    ("Cluster", ("overview", "history", "nodes", "managers", "resourceClusterWorkers",
                 "statistics", "system-details", "metrics", "health")),
    ("Users and access", ("me", "users", "tokens", "secrets", "audit", "login", "logout",
                          "permissions")),
    ("Provisioning", ("scim",)),
)  # fmt: skip
_OTHERS: Final = "This document"
#: Operations that a search leaves are open if they are so few.
_OPEN_MAX: Final = 5
_QUERY_MAX: Final = 200
_FILES: Final = {"text/plain": "app.siddhi", "multipart/form-data": "events.csv"}


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of a path, as the page shows it."""

    method: str
    path: str
    summary: str
    access: str
    #: Name, place, values, and whether it must be given.
    parameters: tuple[tuple[str, str, str, bool], ...]
    #: Media type of the body; empty without one.
    media: str

    @property
    def key(self) -> str:
        """Its name in links: ``get-siddhi-apps-app-status``."""
        words = (word.strip("{}") for word in self.path.split("/"))
        return "-".join((self.method.lower(), *filter(None, words)))

    def fits(self, words: Iterable[str]) -> bool:
        """Whether it has every word in its method, path, summary, access or parameters."""
        names = " ".join(name for name, *_ in self.parameters)
        text = f"{self.method} {self.path} {self.summary} {self.access} {names}".lower()
        return all(word in text for word in words)

    def command(self, server: str) -> str:
        """A command of curl for it."""
        parts = ["curl", "-u", "USER"]
        if self.method != "GET":
            parts += ["-X", self.method]
        if self.media == "multipart/form-data":
            parts += ["-F", f"file=@{_FILES[self.media]}"]
        elif self.media:
            data = ("--data-binary", f"@{_FILES.get(self.media, 'body.json')}")
            parts += ["-H", f"Content-Type: {self.media}", *data]
        return shlex.join([*parts, server + self.path])


class ApiPage:
    """The page of the routes of one API."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = routes
        self._operations: tuple[Operation, ...] = ()

    async def show(self, request: Request) -> View:
        """The operations that fit the words of a search, in groups."""
        # The document is made at the first look, not at the start of a manager.
        self._operations = self._operations or operations_of(document(self._routes))
        text = request.query_params.get("q", "")[:_QUERY_MAX]
        found = [one for one in self._operations if one.fits(text.lower().split())]
        values = {
            "text": text,
            "groups": list(_grouped(found)),
            "count": len(found),
            "all": len(self._operations),
            "is_open": bool(text) and len(found) <= _OPEN_MAX,
            "server": str(request.base_url).rstrip("/"),
        }
        return View("api.html", values)


def operations_of(found: Mapping[str, Any]) -> tuple[Operation, ...]:
    """The operations of an OpenAPI document, in its order."""
    return tuple(
        _operation(method.upper(), path, values)
        for path, methods in found["paths"].items()
        for method, values in methods.items()
    )


def _operation(method: str, path: str, values: Mapping[str, Any]) -> Operation:
    parameters = [
        (one["name"], one["in"], _values_of(one["schema"]), bool(one["required"]))
        for one in values["parameters"]
    ]
    bodies = values.get("requestBody", {}).get("content", {})
    media = next(iter(bodies), "")
    if media:
        schema = bodies[media]["schema"]
        needed = schema.get("required", ())
        parameters += [
            (name, "body", _values_of(one), name in needed)
            for name, one in schema.get("properties", {}).items()
        ]
    access = values["description"].removeprefix("Permission: ").rstrip(".")
    return Operation(
        method, path, values["summary"], access or "open, without a user", tuple(parameters), media
    )


def _values_of(schema: Mapping[str, Any]) -> str:
    """The values of a schema in words."""
    if "enum" in schema:
        return " | ".join(schema["enum"])
    if "pattern" in schema:
        return f"text like {schema['pattern']}"
    if schema.get("maximum", 10**9) < 10**9:
        return f"{schema['type']}, {schema['minimum']} to {schema['maximum']}"
    kind = "text" if schema["type"] == "string" else str(schema["type"])
    return f"list of {_values_of(schema['items'])}" if "items" in schema else kind


def _grouped(found: Sequence[Operation]) -> Iterable[tuple[str, list[Operation]]]:
    titles = {part: title for title, parts in _GROUPS for part in parts}
    for title in (*(title for title, _ in _GROUPS), _OTHERS):
        own = [one for one in found if titles.get(one.path.split("/")[1], _OTHERS) == title]
        if own:
            yield title, own
