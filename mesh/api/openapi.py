"""The OpenAPI document of the REST API, made from the table of operations."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, Final

import mesh
from mesh.model import names
from mesh.model.operation import HIGH, ParameterPlace, Public, operations_of
from mesh.model.operations import SECTIONS, section_title

if TYPE_CHECKING:
    from mesh.model.operation import Operation
    from mesh.model.values import JsonObject

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
