"""Words and kinds of names that may follow a part of a statement: the parser says which.

The parser reads the part with a cursor that records what it looks for after the last token, and
stops where it would refuse the end of the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn

from mesh.errors import MeshError
from mesh.language.cursor import Cursor
from mesh.language.parser import read_with
from mesh.language.tokens import TokenKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.language.tokens import Token

#: Precedes a statement, so that queries may follow.
_BEFORE: Final = "define stream S (a int); "
_IN_PARTITION: Final = "partition with (a of S) begin "
_APP: Final = re.compile(r"@\s*app\s*:", re.IGNORECASE)


class _End(Exception):
    """The parser needs more than the text has."""


@dataclass(slots=True)
class Expected:
    """Words, names and symbols that may follow a text."""

    #: Keywords, in the order in which the parser looks for them.
    words: dict[str, None] = field(default_factory=dict)
    #: Kinds of names, in the words of the parser's messages: ``the name of a stream``.
    names: dict[str, None] = field(default_factory=dict)
    symbols: dict[str, None] = field(default_factory=dict)


class _RecordingCursor(Cursor):
    """A cursor that records what is looked for at the end of the text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.expected = Expected()

    def _is_next(self, ahead: int) -> bool:
        return self.at + ahead == len(self.tokens) - 1

    def sees(self, symbol: str, ahead: int = 0) -> bool:
        """Whether the token is this symbol."""
        if self._is_next(ahead):
            self.expected.symbols[symbol] = None
        return super().sees(symbol, ahead)

    def sees_word(self, *words: str, ahead: int = 0) -> bool:
        """Whether the token is one of these keywords."""
        if self._is_next(ahead):
            self.expected.words.update(dict.fromkeys(words))
        return super().sees_word(*words, ahead=ahead)

    def sees_name(self, ahead: int = 0) -> bool:
        """Whether the token may be a name; after the text one may follow."""
        return super().sees_name(ahead) or (ahead > 0 and self._is_next(ahead))

    def expect_name(self, what: str) -> str:
        """Consume a name, which must be next."""
        if self.is_at_end:
            self.expected.names[what] = None
            raise _End
        return super().expect_name(what)

    def take(self) -> Token:
        """Consume the next token."""
        if self.peek().kind is TokenKind.END:
            raise _End
        return super().take()

    def fail(self, *expected: str, words: Sequence[str] = (), hint: str | None = None) -> NoReturn:
        """Refuse the next token; at the end of the text, stop."""
        if self.is_at_end:
            raise _End
        super().fail(*expected, words=words, hint=hint)


def expected_after(statement: str, *, in_partition: bool = False) -> Expected:
    """The continuations of ``statement``, the first part of one.

    Args:
        statement: its text, not empty.
        in_partition: whether it is inside of a partition.
    """
    # Annotations of the app precede everything else.
    before = "" if _APP.search(statement) else _BEFORE + (_IN_PARTITION if in_partition else "")
    cursor = _RecordingCursor(before + statement)
    try:
        read_with(cursor)
    except _End:
        pass
    except MeshError:
        return Expected()
    return cursor.expected
