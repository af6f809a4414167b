"""docs/errors.md: every error code, with an example of the output for a user.

Examples are apps of the tests' case files, checked as ``mesh validate`` does.  Codes that no app
can cause are shown by the messages in the source.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypedDict

from mesh.client.checking import check
from mesh.error_codes import PARTS, Entry, Example, make_catalogue
from tools import validity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_CODE: Final = re.compile(r"MESH-[A-Z]\d{3}")
_NAMED: Final = "@App:name('A')\n"
_WIDTH: Final = 100

HEAD: Final = """\
# Errors

Meaning, example and remedy of each error code. `mesh explain CODE` shows an entry of this list.

    message [code]  ──▶  position and line, for an error in a text  ──▶  detail  ──▶  hint

A code never changes. An error has one message, and usually a detail and a hint. An error in a text
also has its line with a caret. The first entry below is an example.

`make docs` writes this page from `mesh/error_codes` and the tests' cases.
"""


class Shown(TypedDict):
    """Content of ``shown.json``."""

    examples: dict[str, dict[str, str]]
    messages: dict[str, list[str]]


def shown(root: Path) -> Shown:
    """Content of ``shown.json``: examples of the codes for apps, messages of the others."""
    raised = raised_codes(root)
    wanted = {code for code in raised if code[5] in "LP"}
    examples = collect_examples(root, wanted)
    messages = collect_messages(root)
    return {
        "examples": {
            code: {"app": examples[code].app, "error": examples[code].error}
            for code in sorted(examples)
        },
        "messages": {code: messages[code] for code in sorted(messages) if code not in examples},
    }


def shown_json(found: Shown) -> str:
    """The text of ``shown.json``."""
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def errors_document(found: Shown) -> str:
    """The text of docs/errors.md."""
    entries = make_catalogue(found["examples"], found["messages"])
    lines = [HEAD]
    for letter, name in PARTS.items():
        lines.append(f"## {name}: MESH-{letter}\n")
        lines += (_section(entry) for entry in entries.values() if entry.part == letter)
    return "\n".join(lines)


def _section(entry: Entry) -> str:
    title = entry.title[0].upper() + entry.title[1:]
    parts = [f"### {entry.code}", _filled(f"{title}. {entry.meaning}")]
    if entry.example is not None:
        parts.append(f"```text\n{entry.example.app}\n```")
        parts.append(f"```text\n{entry.example.error}\n```")
    elif entry.messages:
        parts.append("\n".join(f"    {message}" for message in entry.messages))
    parts.append(f"{_filled(entry.mend)}\n")
    return "\n\n".join(parts)


def _filled(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


# Examples


def collect_examples(root: Path, wanted: set[str]) -> dict[str, Example]:
    """An app for each code that has one, of those that give this code alone.

    The one in ``shown.json`` stays while its case does; else it is the plainest.
    """
    found: dict[str, Example] = {}
    for apps in (list(_own_cases(root)), _engine_cases(root)):
        if found.keys() >= wanted:
            break
        here = dict.fromkeys(apps)
        kept = {}
        for app in _shown_now(root):
            made = _example(app) if app in here else None
            if made is not None:
                kept[made[0]] = made[1]
        missing = wanted - found.keys() - kept.keys()
        found |= {code: example for code, example in kept.items() if code not in found}
        for app in here if missing else ():
            made = _example(app)
            if made is None or made[0] not in missing:
                continue
            code, example = made
            if code not in found or _plainness(example) < _plainness(found[code]):
                found[code] = example
    return found


def _shown_now(root: Path) -> list[str]:
    path = root / "mesh" / "error_codes" / "shown.json"
    examples = json.loads(path.read_text(encoding="utf-8"))["examples"] if path.exists() else {}
    return [example["app"] for example in examples.values()]


def _example(app: str) -> tuple[str, Example] | None:
    """The code that an app gives, if it is one, and the app as its example."""
    checked = check(app, {})
    told = (*checked.errors, *checked.warnings)
    return (told[0].code, Example(app, told[0].render(app))) if len(told) == 1 else None


def _plainness(example: Example) -> tuple[int, int, int, str]:
    """Rank of an example: a hint, a name above all, few lines and few words."""
    hints = ("\n  hint: Did you mean", "\n  hint: ", "")
    hint = next(index for index, start in enumerate(hints) if start in example.error)
    return hint, example.app.count("\n"), len(example.app), example.app


def _own_cases(root: Path) -> Iterator[str]:
    """Apps of the cases about mistakes, as the tests run them."""
    cases = root / "tests" / "cases"
    for path in (
        *sorted((cases / "language").glob("*.txt")),
        *sorted((cases / "plan").glob("*.txt")),
    ):
        is_planned = path.parent.name == "plan"
        for block in path.read_text(encoding="utf-8").split("\n\n"):
            given, divider, _ = block.strip("\n").partition("\n----")
            app = "\n".join(line for line in given.split("\n") if not line.startswith("#"))
            if not divider:
                continue
            if app.startswith("app\n"):
                yield app.removeprefix("app\n")
            else:
                yield _NAMED + app if is_planned else app


def _engine_cases(root: Path) -> Iterator[str]:
    """Apps of the cases that the reference engine refuses."""
    for path in sorted((root / "tests" / "cases" / "siddhiql").glob("*.txt")):
        if path.name != "differences.txt":
            for case in validity.cases(path):
                is_refused = case.verdict is not None and not case.verdict.accepted
                if is_refused and case.query is None and not case.variables:
                    yield _NAMED + case.app


# Codes raised by the source


def raised_codes(root: Path) -> set[str]:
    """Every code that the source gives an error: as a text of its own, not to compare with."""
    return {code for _, _, code in _codes(root)}


def computed_parts(root: Path) -> set[str]:
    """Letters of the codes that are computed from a number, as ``MESH-A{status}`` is."""
    return {
        match[1]
        for tree in _trees(root)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant)
        if (match := re.fullmatch(r"MESH-([A-Z])", str(node.values[0].value)))
    }


def collect_messages(root: Path) -> dict[str, list[str]]:
    """The messages of each code, if the source has them beside it."""
    found: dict[str, list[str]] = {}
    for call, constant, code in _codes(root):
        if isinstance(call, ast.Call) and len(call.args) > 1 and call.args[0] is constant:
            message = _template(call.args[1])
            known = found.setdefault(code, [])
            if message is not None and message not in known:
                known.append(message)
    return {code: messages for code, messages in found.items() if messages}


@lru_cache(maxsize=1)
def _codes(root: Path) -> tuple[tuple[ast.AST, ast.Constant, str], ...]:
    """Each code in the source with the node that contains it."""
    return tuple(
        (parent, node, node.value)
        for tree in _trees(root)
        for parent in ast.walk(tree)
        if not isinstance(parent, ast.Compare | ast.MatchValue)
        for node in ast.iter_child_nodes(parent)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and _CODE.fullmatch(node.value)
    )


@lru_cache(maxsize=1)
def _trees(root: Path) -> tuple[ast.Module, ...]:
    """The modules of the source that mention codes."""
    texts = (path.read_text(encoding="utf-8") for path in sorted((root / "mesh").rglob("*.py")))
    return tuple(ast.parse(text) for text in texts if "MESH-" in text)


def _template(message: ast.expr) -> str | None:
    """A message as written, with ``{name}`` for variable parts; None if it is built elsewhere."""
    if isinstance(message, ast.Constant):
        return str(message.value)
    if not isinstance(message, ast.JoinedStr):
        return None
    parts = []
    for value in message.values:
        if isinstance(value, ast.Constant):
            parts.append(str(value.value))
        else:
            assert isinstance(value, ast.FormattedValue)
            parts.append(f"{{{_last_name(value.value)}}}")
    return "".join(parts)


def _last_name(expression: ast.expr) -> str:
    """The placeholder of an expression: its last name."""
    names: Iterable[str] = re.findall(r"[A-Za-z_]\w*", ast.unparse(expression))
    *_, last = ("..", *names)
    return last.strip("_").lower()
