"""``map:`` and ``list:`` functions.

Source: the documentation of siddhi-execution-map and -list.  One difference: maps and lists are
values here, so ``map:put`` and the like return a changed copy and leave their arguments unchanged.
A row fails if the argument is no map or list, or if a list doesn't have the index.
"""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from mesh.functions.documents import read_json, write_json
from mesh.functions.kernels import parse_real
from mesh.functions.objects import ValueSet, identity, java_class, object_text
from mesh.functions.vectors import Function, each_row


def _map(value: object) -> dict[object, object]:
    if not isinstance(value, dict):
        raise ValueError(f"a map is asked for, not {_kind(value)}")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"a list is asked for, not {_kind(value)}")
    return value


def _kind(value: object) -> str:
    return "null" if value is None else java_class(value)


def _create_map(*pairs: object) -> dict[object, object]:
    if len(pairs) % 2:
        raise ValueError("map:create takes keys and values in turn")
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def combined(*maps: object) -> dict[Any, Any]:
    """Map each key of any of the maps to the list of its values in all of them."""
    mappings = [_map(one) for one in maps]
    keys = dict.fromkeys(key for one in mappings for key in one)
    return {key: [one.get(key) for one in mappings] for key in keys}


def _without(value: object, key: object) -> dict[object, object]:
    return {k: v for k, v in _map(value).items() if k != key}


def _has_value(value: object, target: object) -> bool:
    return identity(target) in {identity(one) for one in _map(value).values()}


def _from_json(text: str) -> dict[object, object]:
    document = read_json(text)
    if not isinstance(document, dict):
        raise ValueError(f"'{text}' is no JSON object")
    return document


def _from_xml(text: str) -> dict[object, object]:
    if "<!DOCTYPE" in text:
        raise ValueError("XML with a document type can't be had")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"'{text}' is no XML: {error}") from error
    return _of_element(root)


def _of_element(element: Any) -> dict[object, object]:
    return {child.tag: _of_element(child) if len(child) else _of_text(child) for child in element}


def _of_text(element: Any) -> object:
    text = element.text or ""
    if text in ("true", "false"):
        return text == "true"
    number = parse_real(text)
    if number is None or not text.strip():
        return text
    # A whole number is a Long, as in Java's NumberFormat.
    return int(number) if number.is_integer() and abs(number) < 2**63 else number


def _to_xml(value: object, root: object = None) -> str:
    if root is not None and not isinstance(root, str):
        raise ValueError("the name of the root is no string")
    inside = _elements(_map(value))
    return inside if root is None else f"<{root}>{inside}</{root}>"


def _elements(value: dict[object, object]) -> str:
    elements = []
    for key, one in value.items():
        name = object_text(key)
        text = _elements(one) if isinstance(one, dict) else escape(object_text(one))
        elements.append(f"<{name}>{text}</{name}>")
    return "".join(elements)


def _get(value: object, key: object, default: object = None) -> object:
    entry = _map(value).get(key)
    return default if entry is None else entry


def _replace(value: object, key: object, new: object) -> dict[object, object]:
    return {k: new if k == key else v for k, v in _map(value).items()}


def _replace_all(value: object, other: object) -> dict[object, object]:
    source = _map(other)
    return {k: source.get(k, v) for k, v in _map(value).items()}


def _add(value: object, one: object, index: object = None) -> list[Any]:
    elements = list(_list(value))
    if index is None:
        return [*elements, one]
    place = _place(elements, index, most=len(elements))
    return [*elements[:place], one, *elements[place:]]


def _place(value: list[object], index: Any, *, most: int) -> int:
    if index is None or not 0 <= index <= most:
        raise ValueError(f"a list of {len(value)} has no place {index}")
    return int(index)


def _add_all(value: object, other: object, distinct: object = False) -> list[object]:
    together = [*_list(value), *_list(other)]
    return list(ValueSet(together)) if distinct else together


def _identities(value: object) -> set[object]:
    return {identity(one) for one in _list(value)}


def _index(value: object, element: object) -> int:
    identities = [identity(one) for one in _list(value)]
    return identities.index(identity(element)) if identity(element) in identities else -1


def _last_index(value: object, element: object) -> int:
    identities = [identity(one) for one in _list(value)][::-1]
    return (
        len(identities) - 1 - identities.index(identity(element))
        if identity(element) in identities
        else -1
    )


def _remove(value: Any, element: object) -> list[object]:
    place = _index(value, element)
    return list(value) if place < 0 else [*value[:place], *value[place + 1 :]]


def _remove_at(value: Any, index: object) -> list[object]:
    place = _place(_list(value), index, most=len(value) - 1)
    return [*value[:place], *value[place + 1 :]]


def _filtered(value: object, other: object, *, keep: bool) -> list[object]:
    identities = _identities(other)
    return [one for one in _list(value) if (identity(one) in identities) == keep]


def _set_value(value: Any, index: object, new: object) -> list[object]:
    place = _place(_list(value), index, most=len(value) - 1)
    return [*value[:place], new, *value[place + 1 :]]


def _sort(value: Any, order: str = "asc") -> list[object]:
    if order.lower() not in ("asc", "desc", "rev"):
        raise ValueError(f"'{order}' is no order: it is asc, desc or rev")
    if order.lower() == "rev":
        return _list(value)[::-1]
    try:
        return sorted(_list(value), reverse=order.lower() == "desc")
    except TypeError as error:
        raise ValueError("values of several kinds, or null, have no order") from error


def _nullable(function: Any) -> Function:
    return each_row(function, takes_null=True)


FUNCTIONS: dict[str, Function] = {
    "map:clear": _nullable(lambda value: {} if _map(value) is not None else None),
    "map:clone": _nullable(lambda value: dict(_map(value))),
    "map:combinebykey": _nullable(combined),
    "map:containskey": _nullable(lambda value, key: key in _map(value)),
    "map:containsvalue": _nullable(_has_value),
    "map:create": _nullable(_create_map),
    "map:createfromjson": each_row(_from_json),
    "map:createfromxml": each_row(_from_xml),
    "map:get": _nullable(_get),
    "map:isempty": _nullable(lambda value: not _map(value)),
    "map:ismap": _nullable(lambda value: isinstance(value, dict)),
    "map:keys": _nullable(lambda value: list(_map(value))),
    "map:put": _nullable(lambda value, key, new: {**_map(value), key: new}),
    "map:putall": _nullable(lambda value, other: {**_map(value), **_map(other)}),
    "map:putifabsent": _nullable(
        lambda value, key, new: _map(value) if key in _map(value) else {**value, key: new}
    ),
    "map:remove": _nullable(_without),
    "map:replace": _nullable(_replace),
    "map:replaceall": _nullable(_replace_all),
    "map:size": _nullable(lambda value: len(_map(value))),
    "map:tojson": _nullable(lambda value: write_json(_map(value))),
    "map:toxml": _nullable(_to_xml),
    "map:values": _nullable(lambda value: list(_map(value).values())),
    "list:add": _nullable(_add),
    "list:addall": _nullable(_add_all),
    "list:clear": _nullable(lambda value: _list(value)[:0]),
    "list:clone": _nullable(lambda value: list(_list(value))),
    "list:contains": _nullable(lambda value, one: identity(one) in _identities(value)),
    "list:containsall": _nullable(lambda value, other: _identities(other) <= _identities(value)),
    "list:containsany": _nullable(
        lambda value, other: bool(_identities(other) & _identities(value))
    ),
    "list:create": _nullable(lambda *values: list(values)),
    "list:get": _nullable(
        lambda value, index: value[_place(_list(value), index, most=len(value) - 1)]
    ),
    "list:indexof": _nullable(_index),
    "list:isempty": _nullable(lambda value: not _list(value)),
    "list:islist": _nullable(lambda value: isinstance(value, list)),
    "list:lastindexof": _nullable(_last_index),
    "list:remove": _nullable(_remove),
    "list:removeall": _nullable(lambda value, other: _filtered(value, other, keep=False)),
    "list:removebyindex": _nullable(_remove_at),
    "list:retainall": _nullable(lambda value, other: _filtered(value, other, keep=True)),
    "list:setvalue": _nullable(_set_value),
    "list:size": _nullable(lambda value: len(_list(value))),
    "list:sort": _nullable(_sort),
}
