"""The REST API for people: its OpenAPI document as a page, with a search and commands of curl."""

from __future__ import annotations

import functools
import shlex
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from mesh.api.routes import document
from mesh.dashboard.responses import PageView
from mesh.model.operations import SECTIONS, section_title

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request

    from mesh.model.values import JsonMapping

#: Operations that a search leaves are open if they are so few.
_OPEN_MAX: Final = 5
_QUERY_MAX: Final = 200
_FILES: Final = {"text/plain": "app.siddhi", "multipart/form-data": "events.csv"}


@dataclass(frozen=True, slots=True)
class ShownOperation:
    """A method of a path, as the page shows it."""

    method: str
    path: str
    #: Title of its section.
    section: str
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


async def show(request: Request) -> PageView:
    """The operations that fit the words of a search, in the sections of the table."""
    text = request.query_params.get("q", "")[:_QUERY_MAX]
    matches = [one for one in operations() if one.fits(text.lower().split())]
    values = {
        "text": text,
        "groups": [(section, list(members)) for section, members in groupby(matches, _section_of)],
        "count": len(matches),
        "all": len(operations()),
        "is_open": bool(text) and len(matches) <= _OPEN_MAX,
        "server": str(request.base_url).rstrip("/"),
    }
    return PageView("api.html", values)


@functools.cache
def operations() -> tuple[ShownOperation, ...]:
    """The operations of the OpenAPI document, section by section and by path."""
    paths = document()["paths"]
    entries = [_operation(m.upper(), path, one) for path in paths for m, one in paths[path].items()]
    titles = [section_title(one) for one in SECTIONS]
    return tuple(sorted(entries, key=lambda one: titles.index(one.section)))


def _operation(method: str, path: str, values: JsonMapping) -> ShownOperation:
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
    return ShownOperation(
        method,
        path,
        values["tags"][0],
        values["summary"],
        access or "open, without a user",
        tuple(parameters),
        media,
    )


def _values_of(schema: JsonMapping) -> str:
    """The values of a schema in words."""
    if "enum" in schema:
        return " | ".join(schema["enum"])
    if "pattern" in schema:
        return f"text like {schema['pattern']}"
    if schema.get("maximum", 10**9) < 10**9:
        return f"{schema['type']}, {schema['minimum']} to {schema['maximum']}"
    kind = "text" if schema["type"] == "string" else str(schema["type"])
    return f"list of {_values_of(schema['items'])}" if "items" in schema else kind


def _section_of(one: ShownOperation) -> str:
    return one.section
