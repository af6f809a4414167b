"""Regular expressions: no text takes long, and both engines find the same."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mesh.functions import patterns
from mesh.functions.patterns import compiled, longest_text, replaced, split, tree_of
from mesh.functions.strings import FUNCTIONS
from mesh.functions.vectors import Vector, from_values, python_values
from mesh.model.types import AttributeType

#: Python's engine alone would need longer than the age of the universe, or of this test.
BOMBS = (
    (r"(a+)+$", "a" * 5000 + "b"),
    (r"(a|a)*b", "a" * 5000),
    (r"(a|aa)+$", "a" * 5000 + "b"),
    (r"(.*)*x", "a" * 5000),
    (r"a?" * 40 + "a" * 40, "a" * 39),
    (r".*.*.*.*x", "a" * 100_000),
    (r"a+b", "a" * 900_000),
    (r"^(\w+\s?)*$", "word " * 5000 + "!"),
)


@pytest.mark.parametrize(("pattern", "text"), BOMBS)
def test_no_text_takes_long(pattern: str, text: str) -> None:
    expression = compiled(pattern)
    assert not expression.find(text)
    assert not expression.lookingat(text)
    assert not expression.fullmatch(text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(a+)\1+$", "a" * 5000 + "b"),
        (r"(?=(a+)+$)a", "a" * 5000 + "b"),
        (r"(a+)+\Z", "a" * 5000 + "b\n"),
        (r"(?i)(ä|a+)+$", "a" * 5000 + "ä!"),
    ],
)
def test_a_row_that_could_take_long_with_the_only_engine_fails(pattern: str, text: str) -> None:
    with pytest.raises(ValueError, match="may take too long"):
        compiled(pattern).find(text)


def test_an_end_is_before_a_last_line_end_too() -> None:
    many = "a" * 5000
    assert replaced("(a+)+$", "x", "baa\n") == "bx\n"
    assert replaced("(a+)+$", "x", f"b{many}") == "bx"
    assert compiled("(a+)+$").find(f"b{many}\n")
    assert not compiled("(a+)+$").fullmatch(f"{many}\n")
    with pytest.raises(ValueError, match="may take too long"):
        replaced("(a+)+$", "x", f"{many}\n")
    assert replaced("(a+)+", "x", f"{many}\n") == "x\n"


def test_a_column_with_a_bomb_is_searched() -> None:
    class Rows:
        length = 2
        failures: dict[int, str] = {}  # noqa: RUF012

    texts = from_values(["a" * 5000 + "b", "aaa"], AttributeType.STRING)
    pattern = Vector(AttributeType.STRING, from_values([r"(a+)+$"], AttributeType.STRING).values)
    rows: Any = Rows()
    found = FUNCTIONS["regex:find"]([pattern, texts], AttributeType.BOOL, rows)
    assert python_values(found) == [False, True]
    assert rows.failures == {}


PATTERNS = (
    r"a", r"a+", r"(a)(b)?", r"a|ab", r"(a|ab)(c|bcd)", r"[^a]b", r"\d+", r"\s", r"[\s,]+", r"\S+",
    r"\w+@\w+", r"\bab\b", r"^a", r"a$", r"^a+$", r"a\n?$", r"(a+)+$", r"\p{Alpha}+", r"\h+", r"\R",
    r"(?<x>a)(?<y>b+)", r"(a$|b)", r"a\Z", r"((\w+)\s?)+$", r"a*?b", r"a{2,3}", r"(?i)AB",
    r"(?s)a.b", r"a.b", r"\x41|\u00e4", r"\.",
    r"a\z", r"[a-c$]+", r"\$", r"(\d\d?){1,2}", r"x*", r"a|b$", r"(?:ab)+", r"\\$", r"[a\-b]+",
)  # fmt: skip
TEXTS = (
    "", "a", "ab", "aab", "abcd", "ba", "a\n", "a\nb", "ab\n\n", "12 34", "a\x0bb", "a, b;c", "x@y",
    "AB ab", "\u00e4b", "a\u00a0b", "a\r\nb", "\\", "$a", "aaaa", "a.b", "\U0001f600a", "1234567",
)  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_both_engines_find_the_same(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(text: str) -> list[Any]:
        expression = patterns.Pattern(pattern)
        first = expression.search(text)
        groups = None if first is None else (first.group(0), first.groups(), first.start())
        return [
            expression.fullmatch(text),
            expression.lookingat(text),
            expression.find(text),
            expression.find(text, len(text) // 2),
            groups,
            expression.sub(lambda match: f"<{match.group(0)}>", text, 0),
            expression.sub(lambda match: f"<{match.group(0)}>", text, 1),
            [match.span() for match in expression.finditer(text)],
        ]

    by_python = [found(text) for text in TEXTS]
    monkeypatch.setattr(patterns, "STEPS_FEW", -1.0)
    assert [found(text) for text in TEXTS] == by_python


def test_the_patterns_have_a_form_for_both() -> None:
    use = patterns._Use.EXISTS
    assert [one for one in PATTERNS if not patterns.Pattern(one)._compiled_linear(use, False)] == []


def test_an_unpaired_surrogate_fails_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="surrogate"):
        compiled("(a+)+b").find("\ud800" + "a" * 100)
    assert split(",", "a,\ud800") == ["a", "\ud800"]


@pytest.mark.parametrize(
    ("pattern", "is_search", "length"),
    [
        ("abc", False, 1 << 30),
        ("a?b?", False, 1 << 30),
        ("a+", False, 999),
        ("a+b", True, 30),
        ("a*b*c*", False, 9),
        ("(ab)*", False, 999),
        ("(a|bc)*", False, 9),
        ("(a+)+", False, 3),
        ("(a?){20}", False, 0),
    ],
)
def test_the_bound_of_steps_is_that_of_the_choices(
    pattern: str, is_search: bool, length: int
) -> None:
    found = longest_text(tree_of(pattern, re.ASCII), 1000.0, is_search=is_search)
    assert found == length
