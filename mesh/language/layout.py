"""Canonical layout of an app: its own words in its own order, with standard spacing.

Each clause has its own line, and blank lines divide statements.  Keywords are in lower case, quotes
are the plainest possible.  Brackets and comments stay in place, so the meaning is unchanged.  The
layout depends on the tokens and comments alone, not on spaces, so formatting is idempotent.

Canonical form of a text whose ``${NAME}`` have no values yet.

A variable may be a name, a number, a time or a part of a string, and only its value would show
which.  So each is parsed as a name first, and if that is an error, as a number and then as a time.
The canonical text has it as it was written.
"""

from __future__ import annotations

import contextlib
import re
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, MeshErrors, all_errors
from mesh.language.parser import STATEMENTS_MAX, parse_with_cursor
from mesh.language.print_expressions import print_name, print_string
from mesh.language.substitution import VARIABLE, substitute
from mesh.language.tokens import TokenKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mesh.language.cursor import Cursor
    from mesh.language.tokens import Comment, Token


#: Maximum length of a line, unless a single word is longer.
_WIDTH: Final = 100
_INDENT: Final = "    "

_EMPTY_LINE: Final = re.compile(r"[ \t\x0b]*(?:\r\n|\r|\n)[ \t\x0b]*(?:\r|\n)")

#: Longest part whose layout is kept.
_LENGTH_MAX: Final = 10_000

_CLOSE_BEFORE: Final = frozenset((",", ";", ")", "]", ".", ":"))
_CLOSE_BEHIND: Final = frozenset(("(", "[", ".", ":", "@", "#", "!"))


def format_app(text: str) -> str:
    """The canonical text of an app, comments kept.

    Raises:
        MeshErrors: MESH-L1xx for invalid SiddhiQL.
    """
    _, cursor = parse_with_cursor(text)
    return _whole(_laid_out(part, cursor) for part in _parts(cursor))


def format_parts(parts: Sequence[str], base: int) -> str:
    """The canonical text of an app from its parts; as ``format_app`` of them.

    Args:
        parts: the annotations of the app, then definitions, then queries and partitions, each with
            its ``;`` and without comments around it.
        base: index of a definition: queries are read after one, whichever.

    Raises:
        MeshErrors: MESH-L1xx for invalid SiddhiQL.
    """
    slots = [_slot(part) for part in parts if len(part) <= _LENGTH_MAX]
    if len(slots) == len(parts) and not all(slots):
        with contextlib.suppress(MeshError):
            format_app(_whole(p for n, p in enumerate(parts) if n == base or not slots[n]))
    # There may be more parts than are kept.
    is_laid_out = len(slots) == len(parts) and all(slots)
    return _whole(slot[0] for slot in slots) if is_laid_out else format_app(_whole(parts))


def _whole(parts: Iterable[str]) -> str:
    return "\n\n".join(parts) + "\n"


@dataclass(frozen=True, slots=True)
class _Part:
    """The annotations of the app, a statement, or the comments after the last one."""

    #: Index of its first token, and of the one after its last.
    first: int
    stop: int
    #: Those before it and inside, and those after it in its last line.
    comments: tuple[Comment, ...]
    #: With its comments, as written.
    text: str


def _parts(cursor: Cursor) -> Iterator[_Part]:
    tokens, record = cursor.tokens, cursor.layout
    comments = deque(cursor.comments)
    last = len(tokens) - 1
    firsts = [index for index in sorted(record.elements) if not record.lines[index]]
    for first, stop in pairwise((*firsts, last)):
        inside: list[Comment] = []
        while comments and (
            comments[0].before < stop
            or (comments[0].before == stop and _is_in_line_of(cursor, stop - 1, comments[0]))
        ):
            inside.append(comments.popleft())
        start = min([tokens[first].start, *(one.start for one in inside)])
        end = max([_end(tokens[stop - 1]), *(_end(one) for one in inside)])
        yield _Part(first, stop, tuple(inside), cursor.text[start:end])
    if comments:
        yield _Part(last, last, tuple(comments), cursor.text[comments[0].start :])


def _laid_out(part: _Part, cursor: Cursor) -> str:
    """A part in lines; what it was laid out to before is reused."""
    slot = _slot(part.text) if len(part.text) <= _LENGTH_MAX else []
    if not slot:
        slot.append(_Layout(cursor).lines(part))
    return slot[0]


@lru_cache(maxsize=STATEMENTS_MAX)
def _slot(text: str) -> list[str]:
    """The place of the layout of a part, empty at first: it depends on the part alone."""
    return []


class _Layout:
    """State of the writer for one part."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._lines: list[str] = []
        #: The parts of the current line, and the indentation of its statement.
        self._line = ""
        self._indent = 0
        #: Number of open brackets: a line is divided where few are open.
        self._depth = 0
        #: Points where the line may be divided.
        self._breaks: list[int] = []
        #: Whether nothing may follow in the line, because a comment ends it.
        self._is_ended = False
        #: Whether a comment on a line of its own was written last; the blank line then precedes it.
        self._is_behind_comment = False

    def lines(self, part: _Part) -> str:
        comments = deque(part.comments)
        for index in range(part.first, part.stop + 1):
            is_behind = index > part.first
            while comments and comments[0].before == index:
                comment = comments.popleft()
                is_behind = is_behind and _is_in_line_of(self._cursor, index - 1, comment)
                if is_behind:
                    self._write_behind(comment)
                else:
                    self._write_alone(comment, index)
            if index < part.stop:
                self._write(index, self._cursor.tokens[index])
        self._flush()
        return "\n".join(self._lines)

    # Tokens

    def _write(self, index: int, token: Token) -> None:
        cursor = self._cursor
        if index in cursor.layout.lines:
            self._start_line(index)
        elif self._is_ended:
            self._flush()
            self._line = _INDENT * (self._indent + 1)
        elif not self._is_close(index, token):
            self._line += " "
        self._is_behind_comment = False
        text = self._spelling(index, token)
        is_symbol = token.kind is TokenKind.SYMBOL
        if is_symbol and text in (")", "]"):
            self._depth -= 1
        self._line += text
        if is_symbol and text in ("(", "["):
            self._depth += 1
        if is_symbol and text == "," and self._depth <= 1:
            self._breaks.append(len(self._line))
        if index in cursor.layout.unended:
            self._line += ";"

    def _start_line(self, index: int) -> None:
        self._flush()
        if index in self._cursor.layout.elements and not self._is_behind_comment:
            self._blank_line(index)
        self._indent = self._cursor.layout.lines[index]
        self._line = _INDENT * self._indent
        self._depth = 0

    def _is_close(self, index: int, token: Token) -> bool:
        """Whether the token follows the previous one without a space."""
        if index in self._cursor.layout.close:
            return True
        before = self._cursor.tokens[index - 1]
        if token.kind is TokenKind.SYMBOL and token.text in _CLOSE_BEFORE:
            return True
        return before.kind is TokenKind.SYMBOL and before.text in _CLOSE_BEHIND

    def _spelling(self, index: int, token: Token) -> str:
        """The token in its plainest form."""
        match token.kind:
            case TokenKind.NAME if index in self._cursor.layout.words:
                return token.text.lower()
            case TokenKind.QUOTED:
                return print_name(str(token.value))
            case TokenKind.STRING:
                return print_string(str(token.value))
            case TokenKind.LONG:
                return token.text.upper()
            case TokenKind.FLOAT | TokenKind.DOUBLE:
                return token.text.lower()
            case _:
                return token.text

    # Comments

    def _write_behind(self, comment: Comment) -> None:
        """A comment that stays in the line of the token before it."""
        may_break = bool(self._breaks) and self._breaks[-1] == len(self._line)
        self._line += f" {_trimmed(comment.text)}"
        if may_break:
            self._breaks[-1] = len(self._line)
        # A comment of several lines ends its line too, as its width is not that of one line.
        self._is_ended = comment.text.startswith("--") or _has_line_end(comment.text)

    def _write_alone(self, comment: Comment, index: int) -> None:
        """A comment on a line of its own before token ``index``."""
        cursor = self._cursor
        self._flush()
        is_end = cursor.tokens[index].kind is TokenKind.END
        divides = is_end or index in cursor.layout.elements
        if divides and not self._is_behind_comment:
            self._blank_line(index)
        indent = 0 if is_end else cursor.layout.lines.get(index, self._indent + 1)
        self._lines.append(_INDENT * indent + _trimmed(comment.text))
        if divides and not is_end and self._is_apart(comment):
            self._blank_line(index)
        self._is_behind_comment = True
        self._is_ended = True

    def _is_apart(self, comment: Comment) -> bool:
        """Whether an empty line follows the comment."""
        return _EMPTY_LINE.match(self._cursor.text, _end(comment)) is not None

    # Lines

    def _blank_line(self, index: int) -> None:
        """An empty line before token ``index``, unless it is the first of a text or partition."""
        is_first = index - 1 in self._cursor.layout.begins and not self._is_behind_comment
        if self._lines and self._lines[-1] and not is_first:
            self._lines.append("")

    def _flush(self) -> None:
        """End the line, in parts if it is too long."""
        line, self._line = self._line, ""
        breaks, self._breaks = self._breaks, []
        self._is_ended = False
        if not line.strip():
            return
        more = _INDENT * (self._indent + 1)
        start, moved = 0, ""
        for at, following in pairwise((*breaks, len(line))):
            if len(moved) + following - start > _WIDTH:
                self._lines.append(moved + line[start:at].strip() if start else line[:at])
                start, moved = at, more
        self._lines.append(moved + line[start:].strip() if start else line)


def _is_in_line_of(cursor: Cursor, index: int, comment: Comment) -> bool:
    """Whether the comment is in the line where token ``index`` ends."""
    return not _has_line_end(cursor.text[_end(cursor.tokens[index]) : comment.start])


def _end(part: Token | Comment) -> int:
    return part.start + len(part.text)


def _has_line_end(text: str) -> bool:
    return "\n" in text or "\r" in text


def _trimmed(comment: str) -> str:
    """A line comment without trailing blanks; a block comment, closed if it is open."""
    if comment.startswith("--"):
        return comment.rstrip()
    has_end = comment.endswith("*/") and len(comment) >= len("/**/")
    return comment if has_end else f"{comment.rstrip()} */"


#: A number of ten digits that is still an int.
_FIRST_NUMBER: Final = 1_100_000_000


def canonical(text: str) -> str:
    """Format ``text`` with its comments and its variables.

    Raises:
        MeshErrors: MESH-L1xx at text that is not SiddhiQL.
    """
    if VARIABLE.search(text) is None:
        return format_app(text)
    occurrences = _Occurrences()
    substitute(text, occurrences)
    stand_ins = [
        _StandIn(written, _forms(index, written, text))
        for index, written in enumerate(occurrences.written)
    ]
    while True:
        filled = substitute(text, _Occurrences([stand_in.text for stand_in in stand_ins]))
        try:
            output = format_app(str(filled))
        except MeshError as error:
            errors = all_errors(error)
            advanced = [_advance(stand_ins, filled, one) for one in errors]
            if not any(advanced):
                break
        else:
            return _restored(output, stand_ins)
    for one in errors:
        for stand_in in _near(stand_ins, filled, one):
            stand_in.tried = 0
    try:
        values = [stand_in.text for stand_in in stand_ins]
        return _restored(format_app(substitute(text, _Occurrences(values))), stand_ins)
    except MeshError as error:
        raise MeshErrors([_at_original(one, stand_ins) for one in all_errors(error)]) from None


class _Occurrences(dict[str, str]):
    """Values for variables, by their positions in the text, not by their names.

    ``substitute`` reads them in the order of the text.
    """

    def __init__(self, values: list[str] | None = None) -> None:
        super().__init__()
        #: The requested variables, as written.
        self.written: list[str] = []
        self._values = values

    def get(self, name: str, default: str | None = None) -> str:  # type: ignore[override]
        self.written.append(f"${{{name}}}" if default is None else f"${{{name}:{default}}}")
        return "" if self._values is None else self._values[len(self.written) - 1]


@dataclass(slots=True)
class _StandIn:
    """Placeholder of a variable while its text is formatted."""

    variable: str
    forms: tuple[str, ...]
    tried: int = 0

    @property
    def text(self) -> str:
        return self.forms[self.tried]


def _forms(index: int, written: str, text: str) -> tuple[str, ...]:
    """A name, a number and a time that ``text`` doesn't hold; the name as wide as the variable."""
    name = f"_{index}_"
    while name in text:
        name = f"_{name}"
    number = _FIRST_NUMBER + index
    while str(number) in text:
        number += 10_000_000
    return name.ljust(len(written), "_"), str(number), f"{number} sec"


def _advance(stand_ins: list[_StandIn], filled: str, error: MeshError) -> bool:
    """Try the next form of the variable that ``error`` is about, if it is about one."""
    for stand_in in _near(stand_ins, filled, error):
        if stand_in.tried + 1 < len(stand_in.forms):
            stand_in.tried += 1
            return True
    return False


def _near(stand_ins: list[_StandIn], filled: str, error: MeshError) -> Iterator[_StandIn]:
    """The placeholders at the position of the error, or directly before."""
    at = error.position
    if at is None:
        return
    lines = filled.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    line = lines[at.line - 1] if at.line <= len(lines) else ""
    marked, before = line[at.column - 1 : at.column - 1 + at.length], line[: at.column - 1]
    for stand_in in stand_ins:
        mark = stand_in.text.partition(" ")[0]
        if mark in marked or before.rstrip().endswith((mark, stand_in.text)):
            yield stand_in


def _restored(text: str, stand_ins: list[_StandIn]) -> str:
    variables = {stand_in.text: stand_in.variable for stand_in in stand_ins}
    pattern = "|".join(map(re.escape, variables))
    return re.sub(pattern, lambda match: variables[match[0]], text) if pattern else text


def _at_original(error: MeshError, stand_ins: list[_StandIn]) -> MeshError:
    """The error with the variables instead of their placeholders."""
    return MeshError(
        error.code,
        _restored(error.message, stand_ins),
        detail=error.detail,
        hint=error.hint,
        position=error.position,
    )
