r"""Java's regular expressions: translated to Python's, or to RE2's where Python's could take long.

Python's engine backtracks: on some texts ``(a+)+$`` takes more steps than the text has subsets.  So
the steps are bounded, by the pattern and the length of the text.  If the bound is above
``STEPS_FEW``, RE2 searches, in a time that grows with the length alone.  RE2 lacks look-around and
back references.  Nor is it used where its matches could differ: for the places of
matches that may be empty, and for ``$`` and ``\Z`` in a text with a last line end.  Then Python
searches up to ``STEPS_MAX``, and above that the row fails.

Java's syntax and Python's agree except for a few letters.  Translated are ``(?<name>..)``,
``\k<name>``, ``\p{Alpha}`` and the other POSIX classes, ``\h``, ``\R``, ``\Q..\E``, ``\z`` and
``\Z``; ``\d``, ``\w``, ``\s`` and ``\b`` mean ASCII as in Java.  Refused, with a message, are
intersections of classes (``[a-z&&[^b]]``), ``\p`` of Unicode categories and ``\G``.

The bound of the steps comes from a pattern's syntax tree.  A search tries one choice after the
other: how often a part is repeated, which alternative, where the match begins.  The product of the
numbers of choices bounds the number of tries.  It may be far from what a search needs, and it is
never below.
"""

from __future__ import annotations

import importlib
import math
import re
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import re2  # type: ignore[import-untyped]  # has no stubs

from mesh.functions.vectors import check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
#: White space in RE2, where ``\\s`` lacks one.
_SPACE: Final = r"\t-\r "
_UNICODE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_LINE_ENDS: Final = tuple("\n\r\x85\u2028\u2029")
#: Tries of Python's engine that take some milliseconds, and those that take tenths of a second.
STEPS_FEW: Final = 1e5
STEPS_MAX: Final = 1e7
_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_REPLACEMENT: Final = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}|([\\$])", re.DOTALL)

# The module that ``re`` itself uses; it has no public name.
_parser: Any = importlib.import_module("re._parser")
_codes: Any = importlib.import_module("re._constants")

#: Texts are shorter.
LENGTH_MAX: Final = 1 << 30
_REPEATS: Final = (_codes.MAX_REPEAT, _codes.MIN_REPEAT, _codes.POSSESSIVE_REPEAT)


class _Use(Enum):
    """Parts of a match that its reader uses."""

    #: Whether the whole text matches.
    WHOLE = "whole"
    #: Whether there is a match.
    EXISTS = "exists"
    #: Where it is, and its groups.
    PLACE = "place"


class Pattern:
    """A Java regular expression; its methods are those of Python's patterns."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        translated = _translated(pattern)
        self._python = re.compile(translated, re.ASCII)
        self._tree = tree_of(translated, re.ASCII)
        self._is_folded = "i" in _flags(pattern)
        #: Of texts that Python's engine may search, by steps, at the beginning and anywhere.
        self._lengths: dict[tuple[float, bool], int] = {}
        self._linear: dict[tuple[_Use, bool], Any] = {}

    def fullmatch(self, text: str) -> bool:
        """Whether the whole text matches."""
        engine = self._engine(text, _Use.WHOLE, is_search=False)
        return engine.fullmatch(text) is not None

    def lookingat(self, text: str) -> bool:
        """Whether the text begins with a match."""
        return self._engine(text, _Use.EXISTS, is_search=False).match(text) is not None

    def find(self, text: str, start: int = 0) -> bool:
        """Whether there is a match that begins at ``start`` or after it."""
        return self._engine(text, _Use.EXISTS).search(text, start) is not None

    def search(self, text: str) -> re.Match[str] | None:
        """The first match, with its groups; None without one."""
        found: re.Match[str] | None = self._engine(text, _Use.PLACE).search(text)
        return found

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """The matches, from left to right."""
        matches: Iterator[re.Match[str]] = self._engine(text, _Use.PLACE).finditer(text)
        return matches

    def sub(self, expand: Callable[[re.Match[str]], str], text: str, count: int) -> str:
        """The text with its first ``count`` matches replaced, 0 for all."""
        return str(self._engine(text, _Use.PLACE).sub(expand, text, count=count))

    def _engine(self, text: str, use: _Use, *, is_search: bool = True) -> Any:
        """The engine for a text; ValueError when none is sure to end soon."""
        if len(text) <= self._length(STEPS_FEW, is_search):
            return self._python
        key = use, text[-1:] in _LINE_ENDS
        if key not in self._linear:
            self._linear[key] = self._compiled_linear(*key)
        linear = self._linear[key]
        # RE2 folds the case of all letters, and (?i) here those of ASCII.
        if linear is not None and not (self._is_folded and not text.isascii()):
            return linear
        if len(text) <= self._length(STEPS_MAX, is_search):
            return self._python
        raise ValueError(
            f"a text of {len(text)} characters may take too long to match '{self._pattern}'"
        )

    def _length(self, steps: float, is_search: bool) -> int:
        key = steps, is_search
        if key not in self._lengths:
            self._lengths[key] = longest_text(self._tree, steps, is_search=is_search)
        return self._lengths[key]

    def _compiled_linear(self, use: _Use, has_line_end: bool) -> Any:
        """The pattern of RE2 with exactly the same matches; None if there is none.

        Args:
            use: of the matches.
            has_line_end: whether the text ends with one.
        """
        # Empty matches next to others differ.
        if use is _Use.PLACE and may_be_empty(self._tree):
            return None
        try:
            form = _linear_form(self._pattern, use if has_line_end else None)
            return _Linear(re2.compile(form, _OPTIONS))
        except (re2.error, ValueError, IndexError):
            return None


class _Linear:
    """A pattern of RE2; a text with half a character fails as a row does."""

    def __init__(self, pattern: Any) -> None:
        self._pattern = pattern

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._pattern, name)

        def call(*arguments: Any, **more: Any) -> Any:
            try:
                return method(*arguments, **more)
            except UnicodeEncodeError as error:
                raise ValueError(f"the text has an unpaired surrogate: {error}") from error

        return call


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> Pattern:
    """Compile ``pattern``, a Java regular expression.

    Raises:
        ValueError: it is invalid, or can't be translated.
    """
    try:
        return Pattern(pattern)
    except (re.error, IndexError, OverflowError, RecursionError) as error:
        raise ValueError(f"'{pattern}' is no regular expression: {error}") from error


def _flags(pattern: str) -> str:
    """The letters of all inline flags, such as ``(?i)``."""
    return "".join(re.findall(r"\(\?([a-zA-Z]+)[-:)]", pattern))


def _linear_form(pattern: str, use: _Use | None) -> str:
    """The pattern in RE2's syntax; ValueError for what it has not, or has otherwise.

    Args:
        pattern: of Java.
        use: of the matches, in texts that end with a line end; None for other texts, in which
            ``$`` is the very end.
    """
    if "{," in pattern or "\\Q" in pattern or "m" in _flags(pattern):
        raise ValueError(pattern)
    before = pattern.removesuffix("$")
    escapes = len(before) - len(before.rstrip("\\"))
    is_closed = before != pattern and escapes % 2 == 0
    match use:
        case None:
            body = _translated(pattern, end=r"\z")
        case _Use.WHOLE if is_closed:
            body = _translated(before, end="") + r"\z"
        case _Use.EXISTS if is_closed:
            body = _translated(before, end="") + r"(?:\n?\z)"
        case _:
            body = _translated(pattern, end="")
    return _UNICODE.sub(lambda one: rf"\x{{{one[1]}}}" if one[1] else one[0], body)


def _translated(pattern: str, *, end: str | None = None) -> str:
    """The pattern in Python's syntax, or with ``end`` in RE2's.

    Args:
        pattern: of Java.
        end: the form of ``$``; empty to refuse it with ValueError.
    """
    parts: list[str] = []
    at, depth = 0, 0
    while at < len(pattern):
        one = pattern[at]
        if one == "\\":
            text, following = _escape(pattern, at, inside=depth > 0)
            if end is not None:
                text = _linear_escape(pattern[at + 1 : at + 2], text, end, inside=depth > 0)
            parts.append(text)
            at = following
            continue
        if one == "[":
            if depth:
                raise ValueError(f"a class inside a class can't be had: '{pattern}'")
            depth = 1
        elif one == "]" and depth:
            # Directly after the opening bracket it is a literal in Python, and an error in Java.
            depth = 0
        elif end is not None and one == "$" and not depth:
            if not end:
                raise ValueError(f"RE2 has no such $: '{pattern}'")
            one = end
        elif depth and pattern.startswith("&&", at):
            raise ValueError(f"an intersection of classes can't be had: '{pattern}'")
        elif pattern.startswith("(?<", at) and pattern[at + 3 : at + 4] not in ("=", "!", ""):
            parts.append("(?P<")
            at += 3
            continue
        parts.append(one)
        at += 1
    return "".join(parts)


def _linear_escape(letter: str, text: str, end: str, *, inside: bool) -> str:
    """An escape of Python as one of RE2."""
    match letter:
        case "s":
            return _SPACE if inside else f"[{_SPACE}]"
        case "S" if not inside:
            return f"[^{_SPACE}]"
        case "Z" if end:
            return end
        case "S" | "Z" | "k":
            raise ValueError(f"RE2 has no \\{letter}")
        case "z":
            return r"\z"
        case _:
            return text


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
    chars = _CLASSES.get(name)
    if chars is None or (inside and pattern[at + 1] == "P"):
        raise ValueError(f"\\{pattern[at + 1]}{{{name}}} can't be had: '{pattern}'")
    if inside:
        return chars, end + 1
    return (f"[^{chars}]" if pattern[at + 1] == "P" else f"[{chars}]"), end + 1


def replaced(pattern: str, replacement: str, text: str, *, count: int = 0) -> str:
    r"""Replace the matches in ``text``; ``$1``, ``${name}`` and ``\`` have Java's meaning."""
    total = 0

    def expand(match: re.Match[str]) -> str:
        nonlocal total
        inside = 0

        def part(sign: re.Match[str]) -> str:
            nonlocal inside
            literal, number, name, wrong = sign.groups()
            if wrong is not None:
                raise ValueError(f"'{replacement}' is no replacement")
            if literal is not None:
                piece = str(literal)
            elif name is not None:
                piece = match.group(name) or ""
            else:
                piece = _group(match, number)
            inside += len(piece)
            check(total + inside)
            return piece

        whole = _REPLACEMENT.sub(part, replacement)
        total += len(whole)
        check(total)
        return whole

    return compiled(pattern).sub(expand, text, count)


def _group(match: re.Match[str], digits: str) -> str:
    """The group of ``$12``: group 12 if it exists, else group 1 followed by a 2."""
    for stop in range(len(digits), 0, -1):
        if int(digits[:stop]) <= (match.re.groups or 0):
            return (match.group(int(digits[:stop])) or "") + digits[stop:]
    raise ValueError(f"there is no group {digits}")


def split(pattern: str, text: str) -> list[str]:
    """The parts between matches, as Java's ``split``: no empty ones at the end."""
    parts: list[str] = []
    start = 0
    for match in compiled(pattern).finditer(text):
        # An empty match at the very start gives no part.
        if match.end() == 0:
            continue
        if match.start() == match.end() == len(text):
            continue
        parts.append(text[start : match.start()])
        start = match.end()
    if not parts and start == 0:
        return [text]
    parts.append(text[start:])
    while parts and not parts[-1]:
        parts.pop()
    return parts


def tree_of(pattern: str, flags: int) -> object:
    """The syntax tree of a pattern, with arguments as for ``re.compile``."""
    return _parser.parse(pattern, flags)


def may_be_empty(tree: Any) -> bool:
    """Whether a match may have no character."""
    return int(tree.getwidth()[0]) == 0


def longest_text(tree: object, steps: float, *, is_search: bool) -> int:
    """The length of the longest text on which a match takes at most ``steps`` tries; -1 for none.

    Args:
        tree: of the pattern.
        steps: the bound.
        is_search: whether the match may begin anywhere.
    """

    def is_within(length: int) -> bool:
        starts = length + 1 if is_search else 1
        return starts * _choices(tree, length) <= steps

    if not is_within(0):
        return -1
    low, high = 0, LENGTH_MAX
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_within(middle) else (low, middle - 1)
    return low


def _choices(items: Any, length: int) -> float:
    """The choices of a sequence of items, in a text of a length."""
    product = 1.0
    for code, value in items:
        product *= _choices_of(code, value, length)
        if math.isinf(product):
            break
    return product


def _choices_of(code: object, value: Any, length: int) -> float:
    if code in _REPEATS:
        least, most, items = value
        inner = _choices(items, length)
        times = min(int(most), length + int(least))
        if inner > 1.0:
            return _power(inner, times)
        return float(times - int(least) + 1)
    if code is _codes.SUBPATTERN:
        return _choices(value[-1], length)
    if code is _codes.ATOMIC_GROUP:
        return _choices(value, length)
    if code is _codes.BRANCH:
        return sum(_choices(one, length) for one in value[1])
    if code in (_codes.ASSERT, _codes.ASSERT_NOT):
        return _choices(value[1], length)
    if code is _codes.GROUPREF_EXISTS:
        return sum(_choices(one, length) for one in value[1:] if one)
    if code is _codes.GROUPREF:
        # It compares as many characters.
        return float(length + 1)
    return 1.0


def _power(base: float, exponent: int) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf
