"""A small interpreter of TextMate grammars: sufficient to find the colour of a word.

Patterns are tried at the first place where any matches, in the order listed; one with ``begin`` and
``end`` is in force until its end, over lines too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Grammar = dict[str, Any]


def patterns_of(grammar: Grammar, rule: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The patterns of a rule, with those that they include."""
    for pattern in rule.get("patterns", ()):
        if "include" in pattern:
            yield from patterns_of(grammar, grammar["repository"][pattern["include"][1:]])
        else:
            yield pattern


def scopes(grammar: Grammar, text: str) -> list[tuple[str, str]]:
    """The stretches of ``text`` that are coloured, each with its innermost scope."""
    #: The rules in force; the grammar itself gives no colour.
    stack: list[Grammar] = [{"patterns": grammar["patterns"]}]
    found: list[tuple[str, str]] = []
    for line in text.split("\n"):
        at = 0
        while True:
            rule = stack[-1]
            best = _first(grammar, rule, line, at)
            if best is None:
                _add(found, line[at:], rule.get("name"))
                break
            match, pattern = best
            _add(found, line[at : match.start()], rule.get("name"))
            if pattern is None:
                _add(found, match[0], rule.get("name"))
                stack.pop()
            elif "begin" in pattern:
                _add(found, match[0], pattern.get("name"))
                stack.append(pattern)
            else:
                _captured(found, match, pattern)
            at = match.end()
    return found


def _first(
    grammar: Grammar, rule: dict[str, Any], line: str, at: int
) -> tuple[re.Match[str], dict[str, Any] | None] | None:
    """The pattern that matches first from ``at``; without one for the end of ``rule``."""
    tried: list[tuple[str, dict[str, Any] | None]] = [(rule["end"], None)] if "end" in rule else []
    tried += [(p.get("match") or p["begin"], p) for p in patterns_of(grammar, rule)]
    best: tuple[re.Match[str], dict[str, Any] | None] | None = None
    for expression, pattern in tried:
        match = re.compile(expression).search(line, at)
        if match is not None and (best is None or match.start() < best[0].start()):
            best = (match, pattern)
    return best


def _captured(found: list[tuple[str, str]], match: re.Match[str], pattern: dict[str, Any]) -> None:
    at = match.start()
    for number, capture in sorted(pattern.get("captures", {}).items()):
        start, stop = match.span(int(number))
        if start >= 0:
            _add(found, match.string[at:start], pattern.get("name"))
            _add(found, match.string[start:stop], capture["name"])
            at = stop
    _add(found, match.string[at : match.end()], pattern.get("name"))


def _add(found: list[tuple[str, str]], text: str, scope: str | None) -> None:
    if scope is not None and text.strip():
        found.append((text.strip(), scope))
