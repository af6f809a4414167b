"""Exact texts of JSON and XML; see ``mesh.model.column_texts``."""

from __future__ import annotations

import decimal
import json
from typing import TYPE_CHECKING, Any
from xml.parsers import expat

from mesh.model.column_types import Backend, NoFormError

if TYPE_CHECKING:
    from mesh.model.column_types import Backend, ColumnType


def _no_number(word: str) -> Any:
    raise NoFormError(f"{word} is no JSON")


def json_form(column: ColumnType, text: str) -> str:
    """JSON, whose text is kept."""
    json.loads(text, parse_constant=_no_number)
    if column.octets and len(text.encode()) > column.octets:
        raise NoFormError(f"it has more than {column.octets} bytes")
    return text


def jsonb_form(column: ColumnType, text: str) -> str:
    """JSON that is normalised."""
    value = json.loads(
        text, parse_float=decimal.Decimal, parse_int=decimal.Decimal, parse_constant=_no_number
    )
    if column.backend is Backend.MYSQL:
        return text
    return _shown_json(value)


def _shown_json(value: Any) -> str:
    """JSON as PostgreSQL's jsonb shows it."""
    match value:
        case dict():
            order = sorted(value, key=lambda name: (len(name.encode()), name.encode()))
            return "{" + ", ".join(f"{_quote(n)}: {_shown_json(value[n])}" for n in order) + "}"
        case list():
            return "[" + ", ".join(map(_shown_json, value)) + "]"
        case str():
            return _quote(value)
        case decimal.Decimal():
            if abs(value.adjusted()) > 16_000:
                raise NoFormError("a number is beyond the range")
            return format(value or value.copy_abs(), "f")
        case _:
            return json.dumps(value)


def _quote(text: str) -> str:
    if "\0" in text:
        raise NoFormError("it has a character of code 0")
    text.encode()
    return json.dumps(text, ensure_ascii=False)


def xml_form(_: ColumnType, text: str) -> str:
    """Content of XML."""
    if text.lstrip().startswith(("<?xml", "<!DOCTYPE")):
        raise NoFormError("write it without declarations")
    parser = expat.ParserCreate()
    try:
        # Inside of an element no entity can be declared.
        parser.Parse(f"<r>{text}</r>", True)
    except expat.ExpatError as error:
        raise NoFormError(f"it is no XML: {error}") from None
    return text
