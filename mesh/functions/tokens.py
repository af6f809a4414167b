"""Stream functions that split one event into several: the tokens found in their arguments.

Source: the documentation of the extensions.  Tokens are in the order of the text; a map's entries
in insertion order, where Java has no order.  A token is a tuple, a value for each attribute that
the stream function adds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mesh.functions.containers import combined
from mesh.functions.documents import read_json, write_json
from mesh.functions.jsonpaths import PathNotFoundError, parse
from mesh.functions.objects import java_class
from mesh.functions.patterns import split
from mesh.functions.sizes import summed

if TYPE_CHECKING:
    from collections.abc import Callable

Tokens = list[tuple[Any, ...]]


def _words(text: str | None, pattern: str | None, distinct: bool | None = False) -> Tokens:
    if text is None or pattern is None:
        raise ValueError("str:tokenize can't take null")
    words = split(pattern, text)
    return [(word,) for word in (dict.fromkeys(words) if distinct else words)]


def _elements(document: object, path: str | None, fail: bool | None = True) -> list[object]:
    """The elements at ``path``; no match gives no event, or one with null unless ``fail``."""
    if document is None or path is None:
        raise ValueError("json:tokenize can't take null")
    steps = parse(path)
    try:
        result = steps.read(read_json(document) if isinstance(document, str) else document)
    except PathNotFoundError:
        result = None
    if isinstance(result, list) and (result or fail):
        return result
    if isinstance(result, dict | str):
        return [result]
    return [] if fail else [None]


def _texts(document: object, path: str | None, fail: bool | None = True) -> Tokens:
    parts = _elements(document, path, fail)
    if len(parts) == 1 and isinstance(parts[0], str):
        # A single string is used as it is; inside a list it is JSON, with its quotes.
        value = parse(str(path)).read(
            read_json(document) if isinstance(document, str) else document
        )
        return [(value if isinstance(value, str) else write_json(parts[0]),)]
    texts = summed("" if part is None else write_json(part) for part in parts)
    return [(None if part is None else text,) for part, text in zip(parts, texts, strict=True)]


def _objects(document: object, path: str | None, fail: bool | None = True) -> Tokens:
    return [(part,) for part in _elements(document, path, fail)]


def _entries(*maps: Any) -> Tokens:
    together = combined(*maps)
    return [(key, vs[0] if len(maps) == 1 else vs) for key, vs in together.items()]


def _items(*lists: Any) -> Tokens:
    for one in lists:
        if not isinstance(one, list):
            kind = "null" if one is None else java_class(one)
            raise ValueError(f"list:tokenize takes a list, not {kind}")
    length = max(len(one) for one in lists)
    columns = [[*one, *([None] * (length - len(one)))] for one in lists]
    if len(lists) == 1:
        return list(enumerate(columns[0]))
    return [(index, list(values)) for index, values in enumerate(zip(*columns, strict=True))]


#: Functions by full lower-case name.
TOKENIZERS: dict[str, Callable[..., Tokens]] = {
    "str:tokenize": _words,
    "json:tokenize": _texts,
    "json:tokenizeasobject": _objects,
    "map:tokenize": _entries,
    "list:tokenize": _items,
}
