"""``str:`` functions, and ``regex:``.

Source: the documentation of siddhi-execution-string and -regex.  Two differences: where the
extensions raise on a null, these give null, and an index out of range fails the row.  Indexes and
lengths count UTF-16 units, as Java's.  Regular expressions are those of
``mesh.functions.patterns``.

Stream functions that split one event into several: the tokens found in their arguments.

Source: the documentation of the extensions.  Tokens are in the order of the text; a map's entries
in insertion order, where Java has no order.  A token is a tuple, a value for each attribute that
the stream function adds.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from mesh.functions.containers import combined
from mesh.functions.documents import read_json, write_json
from mesh.functions.jsonpaths import PathNotFoundError, parse
from mesh.functions.kernels import convert
from mesh.functions.objects import java_class, object_text
from mesh.functions.patterns import compiled, replaced, split
from mesh.functions.vectors import (
    Function,
    Rows,
    Vector,
    check,
    each_row,
    excess,
    fail_rows,
    joined,
    python_values,
    summed,
    text_sizes,
    without,
)
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _units(text: str) -> str:
    """``text`` with two characters where Java has two units, so that indexes agree."""
    if text.isascii() or max(text) < "\U00010000":
        return text
    data = text.encode("utf-16-le", "surrogatepass")
    return "".join(chr(int.from_bytes(data[i : i + 2], "little")) for i in range(0, len(data), 2))


def _text(units: str) -> str:
    """The text of ``units``; an unpaired surrogate becomes ``?``, as in Java."""
    if units.isascii() or not any("\ud800" <= one <= "\udfff" for one in units):
        return units
    joined = units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return "".join("?" if "\ud800" <= one <= "\udfff" else one for one in joined)


def _place(units: str, index: int, *, most: int) -> int:
    if not 0 <= index <= most:
        raise ValueError(f"a string of length {len(units)} has no place {index}")
    return index


def _char_at(text: str, index: int) -> str:
    units = _units(text)
    return _text(units[_place(units, int(index), most=len(units) - 1)])


def _char_frequency(text: str, char: str) -> int:
    if not char:
        raise ValueError("str:charFrequency takes a character")
    return _units(text).count(_units(char)[0])


def _equals_ignore_case(one: str, other: str) -> bool:
    return len(one) == len(other) and all(
        a == b or a.upper() == b.upper() or a.lower() == b.lower()
        for a, b in zip(one, other, strict=True)
    )


def _fill_template(template: str | None, *values: object) -> str | None:
    if template is None:
        return None
    # Every second part is inside brackets.
    parts = split(r"\{\{|\}\}", template)
    for index in range(1, len(parts), 2):
        key = parts[index].strip()
        value = _named(values, key)
        if value is not None:
            parts[index] = object_text(value)
    return joined(parts)


def _named(values: tuple[object, ...], key: str) -> Any:
    if isinstance(values[0], dict):
        return values[0].get(key)
    number = int(key)
    if not 1 <= number <= len(values):
        raise ValueError(f"str:fillTemplate has no value {number}")
    return values[number - 1]


def _hex(text: str) -> str:
    return "".join(f"{ord(unit):x}" for unit in _units(text))


def _unhex(text: str) -> str:
    if len(text) % 2:
        raise ValueError(f"'{text}' has half a pair of hexadecimal digits")
    return _text("".join(chr(int(text[at : at + 2], 16)) for at in range(0, len(text), 2)))


def _locate(substring: str, text: str, start: int = 0) -> int:
    units = _units(text)
    start = _place(units, int(start), most=len(units))
    return units.find(_units(substring), start)


def _repeat(text: str, times: int) -> str:
    if times < 0:
        raise ValueError(f"a string can't be repeated {times} times")
    check(len(text.encode("utf-8", "surrogatepass")) * int(times))
    return text * int(times)


def _sha256(text: str, key: str | None = None) -> str:
    if key is None:
        return hashlib.sha256(text.encode()).hexdigest()
    return hmac.digest(key.encode(), text.encode(), "sha256").hex()


def _split(text: str, pattern: str, number: int) -> str:
    parts = split(pattern, text)
    if not 0 <= number < len(parts):
        raise ValueError(f"'{text}' has no part {number}")
    return parts[number]


def _strcmp(one: str, other: str) -> int:
    a, b = _units(one), _units(other)
    for x, y in zip(a, b, strict=False):
        if x != y:
            return ord(x) - ord(y)
    return len(a) - len(b)


def _substr(text: str, *how: Any) -> str:
    if isinstance(how[0], str):
        match = compiled(how[0]).search(text)
        return "" if match is None else match.group(int(how[1]) if len(how) > 1 else 0) or ""
    units = _units(text)
    start = _place(units, int(how[0]), most=len(units))
    stop = _place(units, start + int(how[1]), most=len(units)) if len(how) > 1 else len(units)
    if stop < start:
        raise ValueError(f"a part of a string can't have length {how[1]}")
    return _text(units[start:stop])


def _trim(text: str) -> str:
    return text.strip("".join(map(chr, range(33))))


def _concat(arguments: Sequence[Vector], type: AttributeType, rows: Rows) -> Vector:
    length = max((len(a) for a in arguments if len(a) != 1), default=1)
    texts = [convert(a, AttributeType.STRING).spread(length).values for a in arguments]
    failed = excess(text_sizes(texts, length))
    if failed:
        fail_rows(rows, failed, of_all=length == 1)
        texts = [without(Vector(type, text), failed).values for text in texts]
    # Arrow leaves out the rows of which all texts are null.
    first, *rest = texts
    whole = [pc.fill_null(first, ""), *rest]
    return Vector(type, pc.binary_join_element_wise(*whole, "", null_handling="skip"))


def _contains(arguments: Sequence[Vector], type: AttributeType, rows: Rows) -> Vector:
    text, substring = arguments
    if len(substring) != 1:
        return _EACH_CONTAINS(arguments, type, rows)
    (searched,) = python_values(substring)
    if searched is None:
        return _EACH_CONTAINS(arguments, type, rows)
    matches = pc.match_substring(text.values, searched)
    nulls = text.null_mask
    values = pc.fill_null(matches, False).to_numpy(zero_copy_only=False)
    return Vector(AttributeType.BOOL, values, nulls if nulls.any() else None)


_EACH_CONTAINS = each_row(lambda text, substring: substring in text)


def _find(pattern: str, text: str, start: int = 0) -> bool:
    start = _place(text, int(start), most=len(text))
    return compiled(pattern).find(text, start)


def _group(pattern: str, text: str, number: int) -> str | None:
    match = compiled(pattern).search(text)
    if match is None:
        return None
    if not 0 <= number <= match.re.groups:
        raise ValueError(f"'{pattern}' has no group {number}")
    value: str | None = match.group(int(number))
    return value


def _origin(header: str) -> str | None:
    """The first public address of the header ``X-Forwarded-For``; null without one."""
    for part in header.split(","):
        try:
            address = ipaddress.ip_address(part.strip())
        except ValueError:
            continue
        if address.is_global:
            return str(address)
    return None


FUNCTIONS: dict[str, Function] = {
    "env:getoriginipfromxforwarded": each_row(_origin),
    "str:charat": each_row(_char_at),
    "str:charfrequency": each_row(_char_frequency),
    "str:concat": _concat,
    "str:contains": _contains,
    "str:equalsignorecase": each_row(_equals_ignore_case),
    "str:filltemplate": each_row(_fill_template, takes_null=True),
    "str:hex": each_row(_hex),
    "str:locate": each_row(_locate),
    "str:regexp": each_row(lambda text, pattern: compiled(pattern).fullmatch(text)),
    "str:repeat": each_row(_repeat),
    "str:replaceall": each_row(lambda text, pattern, new: replaced(pattern, new, text)),
    "str:replacefirst": each_row(lambda text, pattern, new: replaced(pattern, new, text, count=1)),
    "str:reverse": each_row(lambda text: text[::-1]),
    "str:sha256": each_row(_sha256),
    "str:split": each_row(_split),
    "str:strcmp": each_row(_strcmp),
    "str:substr": each_row(_substr),
    "str:trim": each_row(_trim),
    "str:unhex": each_row(_unhex),
    "regex:find": each_row(_find),
    "regex:group": each_row(_group),
    "regex:lookingat": each_row(lambda pattern, text: compiled(pattern).lookingat(text)),
    "regex:matches": each_row(lambda pattern, text: compiled(pattern).fullmatch(text)),
}


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
