"""``json:`` functions.

Source: the documentation of siddhi-execution-json.  Invalid JSON or an invalid path fails the row;
a path without a match gives null.  Differences: a null argument gives null.  Numbers of a document
keep their written type: whole ones are Integer or Long, others Double; as a text they keep their
digits.  Paths are those of ``mesh.functions.jsonpaths``.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

from mesh.functions.exact_json import JsonReal, read_exact, write_exact
from mesh.functions.jsonpaths import PathNotFoundError, parse
from mesh.functions.kernels import parse_real
from mesh.functions.mathematics import parse_whole
from mesh.functions.objects import from_python, object_text, python_value
from mesh.functions.vectors import Function, each_row

if TYPE_CHECKING:
    from collections.abc import Callable

#: Characters that Gson escapes, for use in HTML pages.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "=": "\\u003d", "'": "\\u0027"}


def read_json(text: str) -> Any:
    """Parse a JSON text into objects.

    Raises:
        ValueError: it isn't JSON.
    """
    return from_python(_loaded(text))


def _loaded(text: str) -> object:
    """Parse JSON with Python's number types, which are enough for paths."""
    try:
        return read_exact(text)
    except ValueError as error:
        shown = text if len(text) <= 200 else f"{text[:200]}.."
        raise ValueError(f"'{shown}' is no JSON: {error}") from error


def write_json(value: object) -> str:
    """An object as JSON, without blanks; null members are kept."""
    return write_exact(python_value(value))


def _document(value: object) -> object:
    return _loaded(value) if isinstance(value, str) else value


def find(document: object, path: str) -> Any:
    """The value at ``path`` of a text or an object; None for no match or several."""
    steps = parse(path)
    try:
        result = steps.read(_document(document))
    except PathNotFoundError:
        return None
    if isinstance(result, list):
        return result[0] if len(result) == 1 else None
    return result


def _get(read: Callable[[object], object]) -> Function:
    def run(document: object, path: str) -> Any:
        value = find(document, path)
        return None if value is None else read(value)

    return each_row(run)


def _whole(bits: int) -> Callable[[Any], int | None]:
    def read(value: object) -> int | None:
        try:
            return parse_whole(object_text(value), bits)
        except ValueError:
            return None

    return read


def _real(value: object) -> float | None:
    if isinstance(value, JsonReal) and math.isinf(value):
        raise ValueError(f"{value.text} is beyond the range of a double")
    return parse_real(object_text(value))


def _bool(value: object) -> bool:
    return object_text(value).lower() == "true"


def _string(value: object) -> str:
    return write_json(value) if isinstance(value, dict | list) else object_text(value)


def _object(document: object, path: str) -> object:
    steps = parse(path)
    try:
        return from_python(steps.read(_document(document)))
    except PathNotFoundError:
        return None


def _exists(document: object, path: str) -> bool:
    steps = parse(path)
    try:
        result = steps.read(_document(document))
    except PathNotFoundError:
        return False
    return steps.is_definite or bool(result)


def _set(document: object, path: str, element: object, key: str | None = None) -> object:
    """Append ``element`` to a list; otherwise set it under ``key`` or replace the value."""
    root = read_json(document) if isinstance(document, str) else copy.deepcopy(document)
    element = _parsed(element)
    for place, value in parse(path).places(root):
        if isinstance(value, list):
            value.append(element)
        elif key is not None:
            if isinstance(value, dict):
                value[key] = element
        elif place:
            _holder(root, place)[place[-1]] = element
        else:
            root = element
    return root


def _holder(root: Any, place: tuple[str | int, ...]) -> Any:
    for key in place[:-1]:
        root = root[key]
    return root


def _parsed(element: object) -> object:
    """The parsed value of a text that is a JSON object or list; other values unchanged."""
    if isinstance(element, str) and element.lstrip()[:1] in ("{", "["):
        try:
            return read_json(element)
        except ValueError:
            return element
    return element


def _to_string(document: object, escape: bool = False) -> str:
    text = write_json(document)
    return "".join(_ESCAPES.get(one, one) for one in text) if escape else text


FUNCTIONS: dict[str, Function] = {
    "json:getbool": _get(_bool),
    "json:getdouble": _get(_real),
    "json:getfloat": _get(_real),
    "json:getint": _get(_whole(32)),
    "json:getlong": _get(_whole(64)),
    "json:getobject": each_row(_object),
    "json:getstring": _get(_string),
    "json:isexists": each_row(_exists),
    "json:setelement": each_row(_set),
    "json:toobject": each_row(read_json),
    "json:tostring": each_row(_to_string),
}
