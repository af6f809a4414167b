"""The grammar for editors: up to date, complete, and it colours apps as they are meant."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mesh.language.tokens import KEYWORDS
from tests.support import case_files
from tests.support.paths import ROOT
from tests.support.textmate import scopes
from tests.support.together import together
from tools.docgen.grammar import WORDS, grammar, grammar_json

EDITOR = ROOT / "examples" / "editor"
CASES = sorted((ROOT / "tests" / "cases" / "editor").glob("*.txt"))
MADE = grammar()


def coloured(text: str) -> str:
    """The words with their colours, a line each; those without one are left out."""
    pairs = scopes(MADE, text)
    width = max((len(word) for word, _ in pairs), default=0)
    return "\n".join(f"{word:{width}}  {scope.removesuffix('.siddhiql')}" for word, scope in pairs)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case_files(path: Path, rewrite: bool) -> None:
    case_files.check(path, coloured, rewrite=rewrite)


def test_the_file_is_what_the_code_makes(rewrite: bool) -> None:
    path = EDITOR / "siddhiql.tmLanguage.json"
    if rewrite:
        path.write_text(grammar_json(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == grammar_json()


def test_every_keyword_has_one_colour() -> None:
    words = [word for group in WORDS.values() for word in group.split()]
    assert len(words) == len(set(words))
    assert set(words) == KEYWORDS


@together("keyword", sorted(KEYWORDS))
@together("change", [str, str.upper, str.title])
def test_a_keyword_has_its_colour_in_any_case(keyword: str, change: Any) -> None:
    (scope,) = (scope for scope, words in WORDS.items() if keyword in words.split())
    assert scopes(MADE, change(keyword)) == [(change(keyword), f"{scope}.siddhiql")]
    # And none as a part of a name.
    assert scopes(MADE, f"x{change(keyword)} _{change(keyword)} {change(keyword)}1") == []


def _rules(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [rule for one in value for rule in _rules(one)]
    if not isinstance(value, dict):
        return []
    return [value, *(rule for one in value.values() for rule in _rules(one))]


def test_expressions_compile_and_match_something_and_includes_exist() -> None:
    for rule in _rules(MADE):
        for key in ("match", "begin"):
            if isinstance(rule.get(key), str):
                assert re.compile(rule[key]).fullmatch("") is None, rule
        if isinstance(rule.get("end"), str):
            re.compile(rule["end"])
        groups = re.compile(rule["match"]).groups if isinstance(rule.get("match"), str) else 0
        assert all(int(number) <= groups for number in rule.get("captures", ()))
        if "include" in rule:
            assert rule["include"][1:] in MADE["repository"]


def test_the_extension_for_vs_code_names_files_that_are_there() -> None:
    contributed = json.loads((EDITOR / "package.json").read_text())["contributes"]
    (language,) = contributed["languages"]
    (named,) = contributed["grammars"]
    assert (EDITOR / named["path"]).exists()
    assert json.loads((EDITOR / language["configuration"]).read_text())["comments"]
    assert named["scopeName"] == MADE["scopeName"]
    assert named["language"] == language["id"]
    assert language["extensions"] == [f".{kind}" for kind in MADE["fileTypes"]]
