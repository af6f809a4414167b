"""What the routes answer with: JSON, and the refusal of a parameter."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response

from mesh.errors import MeshError


class Json(Response):
    """Any JSON values, dataclasses among them."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """As JSON, with a newline so that a terminal shows the prompt below it."""
        return orjson.dumps(content) + b"\n"


def values_of(found: Any) -> Any:
    """Dataclasses as the JSON values that they go out as."""
    return orjson.loads(orjson.dumps(found))


def parameter(name: str, given: str, wanted: str) -> MeshError:
    """The refusal of what a request's parameter ``name`` says; MESH-A400."""
    return MeshError("MESH-A400", f'parameter "{name}" is {wanted}, not {given!r}')
