"""JSONPath over Python values, as in Jayway's library.

    $  .name  ['name','other']  [0]  [-1]  [0,2]  [1:3]  [*]  ..name  [?(@.price < 10 && @.name)]

A path is definite if it can match one place only; any other path finds a list, maybe an empty one.
``length()``, ``min()``, ``max()``, ``avg()``, ``sum()`` and ``keys()`` are valid at the end.  A
filter has ``== != < <= > >= =~ in nin``, ``&& || !``, brackets, literals and paths from ``@`` and
``$``.

The file is longer than 400 lines because paths and filters are one recursive grammar.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mesh.functions.patterns import compiled

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Steps to a place: keys and indices.
Place = tuple[str | int, ...]
_Test = Callable[[Any, "_Search"], bool]
_Value = Callable[[Any, "_Search"], Any]

_NAME: Final = re.compile(r"[^\s.\[\]()=<>!&|,*'\"]+")
_INDEX: Final = re.compile(r"\s*(-?\d+)\s*")
_SLICE: Final = re.compile(r"\s*(-?\d*)\s*:\s*(-?\d*)\s*(?::\s*(-?\d*))?\s*")
_OPERATOR: Final = re.compile(r"\s*(==|!=|<=|>=|<|>|=~|nin\b|in\b)\s*")
_LITERAL: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true\b|false\b|null\b")
_FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "length": lambda value: np.int32(len(value)),
    "keys": lambda value: list(value),
    "min": lambda value: float(min(value)),
    "max": lambda value: float(max(value)),
    "sum": lambda value: float(sum(value)),
    "avg": lambda value: float(sum(value)) / len(value),
}
_MISSING: Final = object()
#: Steps in any document, and more of them for each place in it.
_STEPS_FEW: Final = 100_000
_STEPS_OF_PLACE: Final = 10


class PathNotFoundError(Exception):
    """A definite path has no match."""


class _Search:
    """A document that paths are searched in, and the steps that are left for it.

    Each ``..`` may visit all places below each place, so the steps grow with the power of their
    number.
    """

    def __init__(self, document: object) -> None:
        self.document = document
        self._left = _STEPS_FEW
        self._is_measured = False

    def take(self, steps: int = 1) -> None:
        """Take steps.

        Raises:
            ValueError: none is left.
        """
        self._left -= steps
        if self._left < 0 and not self._is_measured:
            self._is_measured = True
            self._left += _STEPS_OF_PLACE * _count(self.document)
        if self._left < 0:
            raise ValueError("the path takes too many steps in this document")


def _count(document: object) -> int:
    count, waiting = 0, [document]
    while waiting:
        inside = _children(waiting.pop())
        count += len(inside)
        waiting += (value for _, value in inside)
    return count


@dataclass(frozen=True, slots=True)
class _Step:
    """One step: the places that it reaches from a place."""

    lead: Callable[[object, _Search], list[tuple[str | int, object]]]
    is_definite: bool
    #: ``..``: starts from the place and from all its descendants.
    is_deep: bool = False
    #: Of ``.name``.
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Path:
    """A parsed path; see ``parse``."""

    steps: tuple[_Step, ...]
    function: str | None = None
    #: Whether it can match one place only.
    is_definite: bool = field(init=False)
    #: Of the members that it leads through, if it has no other steps.
    names: tuple[str, ...] | None = field(init=False)

    def __post_init__(self) -> None:
        definite = all(step.is_definite and not step.is_deep for step in self.steps)
        object.__setattr__(self, "is_definite", definite)
        names = tuple(step.name for step in self.steps if step.name is not None)
        is_plain = definite and self.function is None and len(names) == len(self.steps)
        object.__setattr__(self, "names", names if is_plain else None)

    def places(self, document: object) -> list[tuple[Place, Any]]:
        """The matching places, each with its value.

        Raises:
            ValueError: the path takes too many steps in the document.
        """
        return self._places(_Search(document), document)

    def read(self, document: object) -> Any:
        """The result of the path: a value for a definite path, otherwise a list.

        Raises:
            PathNotFoundError: a definite path has no match.
            ValueError: the path takes too many steps in the document.
        """
        if self.names is None:
            return self.find(_Search(document), document)
        value = document
        for name in self.names:
            if not isinstance(value, dict) or name not in value:
                raise PathNotFoundError
            value = value[name]
        return value

    def find(self, root: _Search, start: object) -> Any:
        """As ``read``, from a place in the document of a search."""
        result = self._only(root, start) if self.is_definite else self._all(root, start)
        if self.function is None:
            return result
        try:
            return _FUNCTIONS[self.function](result)
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise PathNotFoundError from error

    def _only(self, root: _Search, start: object) -> object:
        value = start
        for step in self.steps:
            root.take()
            led = step.lead(value, root)
            if not led:
                raise PathNotFoundError
            value = led[0][1]
        return value

    def _places(self, root: _Search, start: object) -> list[tuple[Place, Any]]:
        places: list[tuple[Place, Any]] = [((), start)]
        for step in self.steps:
            if step.is_deep:
                places = [one for place, value in places for one in _below(place, value, root)]
            led = []
            for place, value in places:
                inner = step.lead(value, root)
                root.take(len(inner))
                led += [((*place, key), one) for key, one in inner]
            places = led
        return places

    def _all(self, root: _Search, start: object) -> list[object]:
        return [value for _, value in self._places(root, start)]


def _below(place: Place, value: object, root: _Search) -> Iterator[tuple[Place, object]]:
    root.take()
    yield place, value
    for key, inner in _children(value):
        yield from _below((*place, key), inner, root)


def _children(value: object) -> list[tuple[str | int, object]]:
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list):
        return list(enumerate(value))
    return []


@lru_cache(maxsize=1024)
def parse(text: str) -> Path:
    """A path, with or without ``$`` at its start.

    Raises:
        ValueError: the path is invalid.
    """
    parser = _Parser(text)
    parser.accept("$")
    if parser.at == 0 and text[:1] not in (".", "["):
        parser.text = f".{text}"
    path = parser.path()
    if parser.at != len(parser.text):
        raise parser.error()
    return path


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at = text.strip(), 0

    def error(self) -> ValueError:
        return ValueError(f"'{self.text}' is no JSON path, from place {self.at} on")

    def accept(self, mark: str) -> bool:
        is_next = self.text.startswith(mark, self.at)
        self.at += len(mark) * is_next
        return is_next

    def expect(self, mark: str) -> None:
        if not self.accept(mark):
            raise self.error()

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        hit = pattern.match(self.text, self.at)
        if hit is not None:
            self.at = hit.end()
        return hit

    def blanks(self) -> None:
        while self.text[self.at : self.at + 1].isspace():
            self.at += 1

    def path(self) -> Path:
        steps: list[_Step] = []
        while self.at < len(self.text):
            deep = self.accept("..")
            if self.accept("["):
                step = self.bracket()
            elif deep or self.accept("."):
                if self.accept("*"):
                    step = _Step(lambda value, root: _children(value), is_definite=False)
                else:
                    name = self.match(_NAME)
                    if name is None:
                        raise self.error()
                    if not deep and name[0] in _FUNCTIONS and self.accept("()"):
                        return Path(tuple(steps), name[0])
                    step = _names((name[0],))
            else:
                break
            steps.append(replace(step, is_deep=deep))
        return Path(tuple(steps))

    def bracket(self) -> _Step:
        self.blanks()
        if self.accept("*"):
            step = _Step(lambda value, root: _children(value), is_definite=False)
        elif self.accept("?"):
            self.blanks()
            self.expect("(")
            test = self.either()
            self.expect(")")
            step = _Step(_filtering(test), is_definite=False)
        elif self.text[self.at : self.at + 1] in ("'", '"'):
            names = [self.quoted()]
            self.blanks()
            while self.accept(","):
                self.blanks()
                names.append(self.quoted())
                self.blanks()
            step = _names(tuple(names))
        else:
            step = self.numbers()
        self.blanks()
        self.expect("]")
        return step

    def quoted(self) -> str:
        mark = self.text[self.at : self.at + 1]
        if mark not in ("'", '"'):
            raise self.error()
        self.at += 1
        text = ""
        while not self.accept(mark):
            self.accept("\\")
            if self.at >= len(self.text):
                raise self.error()
            text += self.text[self.at]
            self.at += 1
        return text

    def numbers(self) -> _Step:
        piece = self.match(_SLICE)
        if piece is not None:
            start, stop, step = (int(n) if n else None for n in piece.groups())
            return _Step(
                lambda value, root: (
                    [(i, value[i]) for i in range(len(value))[start:stop:step]]
                    if isinstance(value, list)
                    else []
                ),
                is_definite=False,
            )
        indexes: list[int] = []
        while True:
            number = self.match(_INDEX)
            if number is None:
                raise self.error()
            indexes.append(int(number[1]))
            if not self.accept(","):
                break
        return _Step(_indexing(tuple(indexes)), is_definite=len(indexes) == 1)

    # Filters

    def either(self) -> _Test:
        left = self.both()
        self.blanks()
        while self.accept("||"):
            left = _or(left, self.both())
            self.blanks()
        return left

    def both(self) -> _Test:
        left = self.one()
        self.blanks()
        while self.accept("&&"):
            left = _and(left, self.one())
            self.blanks()
        return left

    def one(self) -> _Test:
        self.blanks()
        if self.accept("!"):
            inner = self.one()
            return lambda item, root: not inner(item, root)
        if self.accept("("):
            test = self.either()
            self.expect(")")
            return test
        left = self.value()
        operator = self.match(_OPERATOR)
        if operator is None:
            return lambda item, root: left(item, root) is not _MISSING
        if operator[1] == "=~":
            return self.pattern(left)
        return _comparing(operator[1], left, self.value())

    def pattern(self, left: _Value) -> _Test:
        self.blanks()
        self.expect("/")
        end = self.at
        while self.text[end : end + 1] not in ("/", ""):
            end += 2 if self.text[end] == "\\" else 1
        body = self.text[self.at : end]
        self.at = end
        self.expect("/")
        expression = compiled(f"(?i){body}" if self.accept("i") else body)

        def test(item: object, root: _Search) -> bool:
            value = left(item, root)
            return isinstance(value, str) and expression.fullmatch(value)

        return test

    def value(self) -> _Value:
        self.blanks()
        if self.text[self.at : self.at + 1] in ("@", "$"):
            from_item = self.text[self.at] == "@"
            self.at += 1
            path = self.path()
            return lambda item, root: _read_at(path, root, item if from_item else root.document)
        if self.text[self.at : self.at + 1] in ("'", '"'):
            text = self.quoted()
            return lambda item, root: text
        if self.accept("["):
            return self.list()
        literal = self.match(_LITERAL)
        if literal is None:
            raise self.error()
        constants = {"true": True, "false": False, "null": None}
        fixed = constants[literal[0]] if literal[0] in constants else float(literal[0])
        return lambda item, root: fixed

    def list(self) -> _Value:
        parts: list[_Value] = []
        self.blanks()
        while not self.accept("]"):
            parts.append(self.value())
            self.blanks()
            self.accept(",")
            self.blanks()
        return lambda item, root: [part(item, root) for part in parts]


def _names(names: tuple[str, ...]) -> _Step:
    def lead(value: object, root: _Search) -> list[tuple[str | int, object]]:
        if not isinstance(value, dict):
            return []
        return [(name, value[name]) for name in names if name in value]

    is_one = len(names) == 1
    return _Step(lead, is_definite=is_one, name=names[0] if is_one else None)


def _indexing(
    indexes: tuple[int, ...],
) -> Callable[[object, _Search], list[tuple[str | int, object]]]:
    def lead(value: object, root: _Search) -> list[tuple[str | int, object]]:
        if not isinstance(value, list):
            return []
        places = (i if i >= 0 else i + len(value) for i in indexes)
        return [(place, value[place]) for place in places if 0 <= place < len(value)]

    return lead


def _filtering(test: _Test) -> Callable[[object, _Search], list[tuple[str | int, object]]]:
    def lead(value: object, root: _Search) -> list[tuple[str | int, object]]:
        if isinstance(value, list):
            root.take(len(value))
            return [(place, item) for place, item in enumerate(value) if test(item, root)]
        return []

    return lead


def _read_at(path: Path, root: _Search, start: object) -> object:
    try:
        return path.find(root, start)
    except PathNotFoundError:
        return _MISSING


def _or(left: _Test, right: _Test) -> _Test:
    return lambda item, root: left(item, root) or right(item, root)


def _and(left: _Test, right: _Test) -> _Test:
    return lambda item, root: left(item, root) and right(item, root)


def _comparing(operator: str, left: _Value, right: _Value) -> _Test:
    def test(item: object, root: _Search) -> bool:
        a, b = left(item, root), right(item, root)
        if a is _MISSING or b is _MISSING:
            return operator == "!=" and (a is _MISSING) != (b is _MISSING)
        match operator:
            case "==":
                return _same(a, b)
            case "!=":
                return not _same(a, b)
            case "in" | "nin":
                within = isinstance(b, list) and any(_same(a, one) for one in b)
                return within == (operator == "in")
            case _:
                return _ordered(operator, a, b)

    return test


def _ordered(operator: str, a: Any, b: Any) -> bool:
    """Whether the order comparison holds; numbers and strings compare only with their own kind."""
    if not (_is_number(a) and _is_number(b)) and not (isinstance(a, str) and isinstance(b, str)):
        return False
    orders = {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}
    return bool(orders[operator])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.generic) and not isinstance(value, bool)


def _same(a: Any, b: Any) -> bool:
    if _is_number(a) and _is_number(b):
        return float(a) == float(b)
    return type(a) is type(b) and bool(a == b)
