"""Secrets in texts: ``${secret:name}`` in an option stands for a value that no text holds.

The reference stays in texts, plans, buckets and answers.  The value is put in its place in the
process that opens the source or sink.  Values that a process has seen are masked in what it says.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mesh import logs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

REFERENCE: Final = re.compile(r"\$\{secret:([a-z][a-z0-9_.-]{0,63})\}")
_NAME: Final = re.compile(r"[a-z][a-z0-9_.-]{0,63}\Z")
MASK: Final = "***"
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
    """The text with values in place of references; KeyError for one without a value."""
    return REFERENCE.sub(lambda found: values[found[1]], text)


def remember(values: Iterable[str]) -> None:
    """Mask these values from now on in this process."""
    _seen.update(value for value in values if len(value) >= _MASKED_MIN)
    logs.mask = masked


def masked(text: str) -> str:
    """The text without values of secrets that this process has seen."""
    # The longest first: one value may be the beginning of another one.
    for value in sorted(_seen, key=len, reverse=True):
        if value in text:
            text = text.replace(value, MASK)
    return text
