r"""Translation of Java's regular expressions to Python's.

The two agree except for a few letters.  Translated are ``(?<name>..)``, ``\k<name>``, ``\p{Alpha}``
and the other POSIX classes, ``\h``, ``\R``, ``\Q..\E``, ``\z`` and ``\Z``; ``\d``, ``\w``, ``\s``
and ``\b`` mean ASCII as in Java.  Refused, with a message, are intersections of classes
(``[a-z&&[^b]]``), ``\p`` of Unicode categories and ``\G``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_CLASSES: Final = {
    "Alpha": "a-zA-Z",
    "Lower": "a-z",
    "Upper": "A-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Space": r" \t\n\x0b\f\r",
    "Blank": r" \t",
    "XDigit": "0-9a-fA-F",
    "ASCII": r"\x00-\x7f",
    "Graph": "!-~",
    "Print": " -~",
    "Cntrl": r"\x00-\x1f\x7f",
}
_HORIZONTAL: Final = r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000"
_REPLACEMENT: Final = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}|([\\$])", re.DOTALL)


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile ``pattern``, a Java regular expression.

    Raises:
        ValueError: it is invalid, or can't be translated.
    """
    try:
        return re.compile(_translated(pattern), re.ASCII)
    except (re.error, IndexError) as error:
        raise ValueError(f"'{pattern}' is no regular expression: {error}") from error


def _translated(pattern: str) -> str:
    made: list[str] = []
    at, depth = 0, 0
    while at < len(pattern):
        one = pattern[at]
        if one == "\\":
            text, at = _escape(pattern, at, inside=depth > 0)
            made.append(text)
            continue
        if one == "[":
            if depth:
                raise ValueError(f"a class inside a class can't be had: '{pattern}'")
            depth = 1
        elif one == "]" and depth:
            # Directly after the opening bracket it is a literal in Python, and an error in Java.
            depth = 0
        elif depth and pattern.startswith("&&", at):
            raise ValueError(f"an intersection of classes can't be had: '{pattern}'")
        elif pattern.startswith("(?<", at) and pattern[at + 3 : at + 4] not in ("=", "!", ""):
            made.append("(?P<")
            at += 3
            continue
        made.append(one)
        at += 1
    return "".join(made)


def _escape(pattern: str, at: int, *, inside: bool) -> tuple[str, int]:
    """The translation of the escape at ``at``, and the index after it."""
    letter = pattern[at + 1 : at + 2]
    match letter:
        case "p" | "P":
            return _property(pattern, at, inside=inside)
        case "Q":
            end = pattern.find("\\E", at)
            stop = len(pattern) if end < 0 else end
            return re.escape(pattern[at + 2 : stop]), stop + (0 if end < 0 else 2)
        case "h":
            return (_HORIZONTAL if inside else f"[{_HORIZONTAL}]"), at + 2
        case "R":
            return r"(?:\r\n|[\n\x0b\f\r\x85\u2028\u2029])", at + 2
        case "z":
            return r"\Z", at + 2
        case "Z":
            return r"(?=(?:\r\n|[\n\r\x85\u2028\u2029])?\Z)", at + 2
        case "e":
            return r"\x1b", at + 2
        case "G":
            raise ValueError(f"\\G can't be had: '{pattern}'")
        case "k":
            name = pattern[at + 3 : pattern.index(">", at)]
            return f"(?P={name})", at + 4 + len(name)
        case _:
            return pattern[at : at + 2], at + 2


def _property(pattern: str, at: int, *, inside: bool) -> tuple[str, int]:
    end = pattern.index("}", at) if pattern[at + 2 : at + 3] == "{" else at + 2
    name = pattern[at + 3 : end] if end > at + 2 else pattern[at + 2 : at + 3]
    found = _CLASSES.get(name)
    if found is None or (inside and pattern[at + 1] == "P"):
        raise ValueError(f"\\{pattern[at + 1]}{{{name}}} can't be had: '{pattern}'")
    if inside:
        return found, end + 1
    return (f"[^{found}]" if pattern[at + 1] == "P" else f"[{found}]"), end + 1


def replaced(pattern: str, replacement: str, text: str, *, count: int = 0) -> str:
    r"""Replace the matches in ``text``; ``$1``, ``${name}`` and ``\`` have Java's meaning."""

    def expand(found: re.Match[str]) -> str:
        def part(sign: re.Match[str]) -> str:
            literal, number, name, wrong = sign.groups()
            if literal is not None:
                return str(literal)
            if wrong is not None:
                raise ValueError(f"'{replacement}' is no replacement")
            if name is not None:
                return found.group(name) or ""
            return _group(found, number)

        return _REPLACEMENT.sub(part, replacement)

    return compiled(pattern).sub(expand, text, count=count)


def _group(found: re.Match[str], digits: str) -> str:
    """The group of ``$12``: group 12 if it exists, else group 1 followed by a 2."""
    for stop in range(len(digits), 0, -1):
        if int(digits[:stop]) <= (found.re.groups or 0):
            return (found.group(int(digits[:stop])) or "") + digits[stop:]
    raise ValueError(f"there is no group {digits}")


def split(pattern: str, text: str) -> list[str]:
    """The parts between matches, as Java's ``split``: no empty ones at the end."""
    parts: list[str] = []
    start = 0
    for found in compiled(pattern).finditer(text):
        # An empty match at the very start gives no part.
        if found.end() == 0:
            continue
        if found.start() == found.end() == len(text):
            continue
        parts.append(text[start : found.start()])
        start = found.end()
    if not parts and start == 0:
        return [text]
    parts.append(text[start:])
    while parts and not parts[-1]:
        parts.pop()
    return parts
