"""Tokens of a text: their positions, and strings."""

from __future__ import annotations

from mesh.errors import Position
from mesh.language.tokens import TokenKind, tokenize


def test_positions_count_lines_and_columns_from_one() -> None:
    cut = tokenize("a\r\n  bb -- c\n/* x\ny */ 'd'")
    places = [(t.text, cut.places.of(t.start, t.start + len(t.text))) for t in cut.tokens]
    assert places[:3] == [
        ("a", Position(1, 1, 1)),
        ("bb", Position(2, 3, 2)),
        ("'d'", Position(4, 6, 3)),
    ]
    assert cut.tokens[-1].kind is TokenKind.END
    assert [(comment.text, comment.before) for comment in cut.comments] == [
        ("-- c", 2),
        ("/* x\ny */", 2),
    ]
