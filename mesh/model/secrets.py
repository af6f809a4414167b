"""Secrets in texts: ``${secret:name}`` in an option stands for a value that no text holds.

The reference stays in texts, plans, buckets and answers.  The value is put in its place in the
process that opens the source or sink.  Values that a process has seen are masked in what it says.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from mesh.telemetry import logs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

REFERENCE: Final = re.compile(r"\$\{secret:([a-z][a-z0-9_.-]{0,63})\}")
_NAME: Final = re.compile(r"[a-z][a-z0-9_.-]{0,63}\Z")
MASK: Final = "***"
#: The login of a URL.
_LOGIN: Final = re.compile(r"(?<=://)[^/?#@,\s]*(?=@)")
#: Characters that a login has as they are, besides letters and digits.
_IN_LOGIN: Final = "!$&'()*+,;="
_ENCODED: Final = re.compile("(%[0-9A-Fa-f]{2})")
#: Shorter values would mask parts of words.
_MASKED_MIN: Final = 4

_seen: set[str] = set()


def is_name(name: str) -> bool:
    """Whether a secret may have this name."""
    return _NAME.match(name) is not None


def names_in(texts: Iterable[str]) -> frozenset[str]:
    """The names of the secrets that texts refer to."""
    return frozenset(name for text in texts for name in REFERENCE.findall(text))


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with values in place of references; KeyError for one without a value.

    A value in the login of a URL is percent-encoded, or else a part of it would be a host or path.
    """
    text = _LOGIN.sub(
        lambda login: REFERENCE.sub(lambda match: in_login(values[match[1]]), login[0]), text
    )
    return REFERENCE.sub(lambda match: values[match[1]], text)


def in_login(value: str) -> str:
    """A value as the login of a URL may have it; what is percent-encoded already stays."""
    return "".join(
        piece if at % 2 else quote(piece, safe=_IN_LOGIN)
        for at, piece in enumerate(_ENCODED.split(value))
    )


def without(text: str) -> str:
    """The text with a mask in place of each reference."""
    return REFERENCE.sub(MASK, text)


def remember(values: Iterable[str]) -> None:
    """Mask these values from now on in this process, also where they are percent-encoded."""
    for value in values:
        if len(value) >= _MASKED_MIN:
            _seen.update((value, in_login(value), quote(value, safe="")))
    logs.mask = masked


def masked(text: str) -> str:
    """The text without values of secrets that this process has seen."""
    # The longest first: one value may be the beginning of another one.
    for value in sorted(_seen, key=len, reverse=True):
        if value in text:
            text = text.replace(value, MASK)
    return text
