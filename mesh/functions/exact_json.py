"""JSON documents whose numbers keep the digits that they are written with."""

from __future__ import annotations

import json
import re
from typing import Any, Final, Self

import orjson

#: What a double, or a whole number of 64 bits, may show in another way.
_MAY_CHANGE: Final = re.compile(rb"[0-9][.eE]|[0-9]{19}|-0")
_BLANKS: Final = b" \t\r\n"


class JsonReal(float):
    """A number with the text that a document has for it, such as ``1.10`` or ``1e400``."""

    text: str

    def __new__(cls, text: str) -> Self:
        """The nearest double, and the text."""
        real = super().__new__(cls, text)
        real.text = text
        return real

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self.text,)

    def __repr__(self) -> str:
        return self.text


def read_exact(text: bytes | str) -> Any:
    """The values of a document; numbers that would read as another text are ``JsonReal``.

    Raises:
        orjson.JSONDecodeError: the text is no JSON.
    """
    octets = text.encode() if isinstance(text, str) else text
    try:
        value = orjson.loads(octets)
    except orjson.JSONDecodeError as error:
        if "infinity" not in str(error):
            raise
        value = _loaded(octets)
        # The other parser accepts texts that have no octets.
        json.dumps(value, ensure_ascii=False).encode()
        return value
    return _loaded(octets) if _MAY_CHANGE.search(octets) else value


def is_exact(octets: bytes, document: object) -> bool:
    """Whether ``orjson.dumps`` gives each part of a document with the digits of its text.

    Args:
        octets: the text.
        document: its values, by ``orjson.loads``.
    """
    try:
        again = orjson.dumps(document)
    except orjson.JSONEncodeError:
        return False
    return (
        again.translate(None, _BLANKS) == octets.translate(None, _BLANKS)
        or _MAY_CHANGE.search(octets) is None
    )


def _loaded(octets: bytes) -> object:
    return json.loads(octets.decode(), parse_float=_real, parse_int=_whole, parse_constant=_refuse)


def _real(text: str) -> float:
    number = float(text)
    # Java shows numbers from 0.001 to below ten million as Python does.
    is_same = 1e-3 <= abs(number) < 1e7 and repr(number) == text
    return number if is_same else JsonReal(text)


def _whole(text: str) -> int | float:
    return JsonReal(text) if text == "-0" else int(text)


def _refuse(word: str) -> object:
    raise ValueError(f"{word} is no JSON")


def write_exact(value: object) -> str:
    """A value as JSON without blanks; the digits of its numbers are those of the document."""
    match value:
        case JsonReal():
            return value.text
        case list():
            return f"[{','.join(map(write_exact, value))}]"
        case dict():
            pairs = (f"{_quoted(key)}:{write_exact(one)}" for key, one in value.items())
            return f"{{{','.join(pairs)}}}"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _quoted(key: str) -> str:
    return json.dumps(key, ensure_ascii=False)
