"""Annotations: ``@name(key='text', 'text', @nested(..))``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, Position
from mesh.language.syntax import Annotation
from mesh.language.tokens import TokenKind

if TYPE_CHECKING:
    from mesh.language.cursor import Cursor

#: Deepest nesting of annotations; functions that walk the tree recurse.
_DEPTH_MAX: Final = 100


def sees_app_annotation(cursor: Cursor) -> bool:
    """Whether ``@app:`` is next."""
    return cursor.sees("@") and cursor.sees_word("app", ahead=1) and cursor.sees(":", ahead=2)


def parse_app_annotation(cursor: Cursor) -> Annotation:
    """``@App:name('A')``; it holds no other annotations."""
    cursor.start_line()
    position = cursor.position
    cursor.expect("@")
    prefix = cursor.take().text
    cursor.expect(":")
    name = f"{prefix}:{cursor.expect_name('the name of an annotation of the app')}"
    position = cursor.since(position)
    elements: list[tuple[str | None, str]] = []
    if cursor.sees("("):
        cursor.take_close()
        elements = cursor.listed(lambda c: _element(c, "a key", "a text in quotes"))
        _close(cursor)
    return Annotation(name, tuple(elements), position=position)


@dataclass(slots=True)
class _Open:
    """An annotation with an open bracket."""

    name: str
    position: Position
    elements: list[tuple[str | None, str]] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)

    @property
    def whole(self) -> Annotation:
        """The complete annotation."""
        return Annotation(
            self.name, tuple(self.elements), tuple(self.annotations), position=self.position
        )


def parse_annotation(cursor: Cursor) -> Annotation:
    """``@name``, or ``@name(key='text', 'text', @nested(..))``."""
    cursor.start_line()
    pending = [_start(cursor)]
    if not _opens(cursor):
        return pending[0].whole
    while True:
        if cursor.sees("@"):
            nested = _start(cursor)
            if _opens(cursor):
                pending.append(nested)
                _check_depth(len(pending), nested.position)
                continue
            pending[-1].annotations.append(nested.whole)
        else:
            pending[-1].elements.append(_element(cursor, "a key", "a text in quotes", "'@'"))
        while not cursor.accept(","):
            _close(cursor)
            done = pending.pop().whole
            if not pending:
                return done
            pending[-1].annotations.append(done)


def _check_depth(depth: int, position: Position) -> None:
    if depth > _DEPTH_MAX:
        raise MeshError(
            "MESH-L105",
            "annotations are nested too deeply",
            detail=f"{_DEPTH_MAX} levels are possible.",
            position=position,
        )


def _start(cursor: Cursor) -> _Open:
    position = cursor.position
    cursor.expect("@")
    name = cursor.expect_name("the name of an annotation")
    return _Open(name, cursor.since(position))


def _opens(cursor: Cursor) -> bool:
    if not cursor.sees("("):
        return False
    if cursor.sees(")", ahead=1):
        cursor.take()
        cursor.fail("a key or a text", hint="An annotation that holds nothing has no brackets.")
    cursor.take_close()
    return True


def _close(cursor: Cursor) -> None:
    if not cursor.sees(")"):
        is_next = cursor.sees_name() or cursor.sees("@") or cursor.peek().kind is TokenKind.STRING
        cursor.fail("','", "')'", hint="Is a ',' missing before it?" if is_next else None)
    cursor.take()


def _element(cursor: Cursor, *expected: str) -> tuple[str | None, str]:
    if cursor.peek().kind is TokenKind.STRING:
        text = str(cursor.take().value)
        if not cursor.sees("="):
            return None, text
        _equals(cursor)
        return text, _text(cursor)
    if not cursor.sees_name():
        cursor.refuse_keyword(*expected)
        cursor.fail(*expected)
    key = str(cursor.take().value)
    while cursor.sees(".") or cursor.sees("-") or cursor.sees(":"):
        cursor.no_space_before()
        key += cursor.take().text
        cursor.no_space_before()
        key += cursor.expect_name("the rest of the key")
    if not cursor.sees("="):
        cursor.fail("'='", hint="A text is in quotes, and a key precedes '='.")
    _equals(cursor)
    return key, _text(cursor)


def _equals(cursor: Cursor) -> None:
    cursor.take_close()
    cursor.no_space_before()


def _text(cursor: Cursor) -> str:
    if cursor.peek().kind is not TokenKind.STRING:
        cursor.fail("a text in quotes", hint="Values of annotations are in quotes.")
    return str(cursor.take().value)
