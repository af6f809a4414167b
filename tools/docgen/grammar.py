"""examples/editor: a TextMate grammar, with which editors colour SiddhiQL.

The words are those of the tokenizer's table.  The regular expressions use only features that
Oniguruma and Python have in common, so tests can run them.

``grammar`` is longer than 60 lines because it is data: one nested literal.
"""

from __future__ import annotations

import json
from typing import Any, Final

from mesh.language.tokens import KEYWORDS

SCOPE: Final = "source.siddhiql"

#: The keywords by their colour; every one is here once.
WORDS: Final = {
    "storage.type.definition": "define stream table window trigger function aggregation app",
    "storage.type.primitive": "string int long float double bool object",
    "constant.language": "true false null",
    "keyword.operator.word": "and or not in is",
    "keyword.other.unit": (
        "year years month months week weeks day days hour hours min minute minutes sec second"
        " seconds millisec millisecond milliseconds"
    ),
    "keyword.control": (
        "from partition select group by order limit offset asc desc having insert delete update"
        " set return events into output expired current snapshot for raw of as at on within with"
        " begin end every last all first join inner outer right left full unidirectional aggregate"
        " per"
    ),
}

_NAME: Final = r"[A-Za-z_][A-Za-z_0-9]*"
_QUOTED_OR_NAME: Final = rf"`[^`\r\n]+`|{_NAME}"


def _word(words: str) -> str:
    """Any of ``words``, in any case, and not as a part of another word."""
    assert set(words.split()) <= KEYWORDS
    return rf"(?i:\b(?:{'|'.join(words.split())})\b)"


def _match(scope: str, pattern: str, captures: dict[int, str] | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"match": pattern}
    if scope:
        made["name"] = f"{scope}.siddhiql"
    if captures:
        made["captures"] = _captures(captures)
    return made


def _captures(scopes: dict[int, str]) -> dict[str, Any]:
    return {str(number): {"name": f"{scope}.siddhiql"} for number, scope in scopes.items()}


def _between(scope: str, begin: str, end: str, patterns: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": f"{scope}.siddhiql", "begin": begin, "end": end, "patterns": patterns}


def _include(*names: str) -> list[dict[str, Any]]:
    return [{"include": f"#{name}"} for name in names]


def grammar() -> dict[str, Any]:
    """The grammar as JSON values."""
    in_strings = _include("variable", "template")
    repository: dict[str, list[dict[str, Any]]] = {
        "comment": [
            _match("comment.line.double-dash", r"--.*$"),
            _between("comment.block", r"/\*", r"\*/", []),
        ],
        "string": [
            _between("string.quoted.triple", '"""', '"""', in_strings),
            _between("string.quoted.double", '"', r'"|$', in_strings),
            _between("string.quoted.single", "'", r"'|$", in_strings),
        ],
        "variable": [
            _match(
                "meta.substitution",
                r"(\$\{)(\w+)(?:(:)([^}\r\n]*))?(\})",
                {
                    1: "punctuation.definition.variable",
                    2: "variable.other.substitution",
                    3: "punctuation.separator",
                    4: "constant.other.default",
                    5: "punctuation.definition.variable",
                },
            )
        ],
        "template": [_match("variable.other.template", r"\{\{[^{}\r\n]*\}\}")],
        "script": [_between("meta.embedded.script", r"\{", r"\}", _include("script"))],
        "annotation": [
            _match(
                "",
                rf"(@)\s*({_NAME}(?:\s*:\s*{_NAME})?)",
                {1: "punctuation.definition.annotation", 2: "storage.modifier.annotation"},
            )
        ],
        "definition": [
            _match(
                "",
                rf"(?i:\b(define)\s+(stream|table|window|trigger|function|aggregation))\s+"
                rf"([#!]?(?:{_QUOTED_OR_NAME}))",
                {
                    1: "storage.type.definition",
                    2: "storage.type.definition",
                    3: "entity.name.type",
                },
            )
        ],
        "window": [
            _match(
                "",
                rf"(#)\s*((?i:window))\s*\.\s*((?:{_NAME}\s*:\s*)?{_NAME})",
                {
                    1: "punctuation.definition.handler",
                    2: "storage.type.definition",
                    3: "support.function.window",
                },
            )
        ],
        "handler": [
            _match(
                "",
                rf"(#)\s*((?:{_NAME}\s*:\s*)?{_NAME})(?=\s*\()",
                {1: "punctuation.definition.handler", 2: "support.function.stream"},
            )
        ],
        "stream": [_match("entity.name.type.special", rf"[#!]\s*(?:{_QUOTED_OR_NAME})")],
        "number": [
            _match(
                "constant.numeric",
                r"(?<![A-Za-z_0-9])(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?[lLfFdD]?\b",
            )
        ],
        "member": [
            _match("", rf"\.\s*(`[^`\r\n]+`|{_NAME})(?!\s*\()", {1: "variable.other.member"})
        ],
        "quoted": [_match("variable.other.quoted", r"`[^`\r\n]+`")],
        "operator": [
            _match("keyword.operator.sequence", r"->|\.\.\."),
            _match("keyword.operator.comparison", r"<=|>=|==|!=|<|>"),
            _match("keyword.operator.assignment", r"="),
            _match("keyword.operator.arithmetic", r"[-+*/%?]"),
        ],
        "word": [
            # ``min(a)`` is no minute.
            _match(scope, _word(words) + (r"(?!\s*\()" if scope.endswith("unit") else ""))
            for scope, words in WORDS.items()
        ],
        "call": [
            _match(
                "",
                rf"(?:({_NAME})\s*(:)\s*)?({_NAME})(?=\s*\()",
                {
                    1: "entity.name.namespace",
                    2: "punctuation.separator.namespace",
                    3: "support.function",
                },
            )
        ],
        "punctuation": [
            _match("punctuation.terminator", ";"),
            _match("punctuation.separator", ","),
        ],
    }
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "SiddhiQL",
        "scopeName": SCOPE,
        "fileTypes": ["siddhi"],
        "patterns": _include(*(name for name in repository if name != "template")),
        "repository": {name: {"patterns": patterns} for name, patterns in repository.items()},
    }


def grammar_json() -> str:
    """The text of the grammar's file."""
    return json.dumps(grammar(), indent=2) + "\n"
