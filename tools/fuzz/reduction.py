"""Reduction of a case to a smaller one with the same difference."""

from __future__ import annotations

import itertools
import json
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from mesh.errors import MeshError
from mesh.language.parser import parse_app
from mesh.language.printer import print_app
from mesh.language.syntax import Binary, Call, Unary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Case = Mapping[str, Any]
    #: The cases, of those given in one call, that still show it.
    Shows = Callable[[Sequence[Case]], list[bool]]

#: Candidates of one round; the smallest are first.
_CANDIDATES_MAX: Final = 150
_ROUNDS_MAX: Final = 15


def reduce(case: Case, shows: Shows) -> Case:
    """Return the smallest case found by removing steps and parts of the app, one after the other.

    Args:
        case: the case that shows the difference.
        shows: tests the candidates of a round at once.
    """
    for _ in range(_ROUNDS_MAX):
        candidates = sorted(_smaller(case), key=size)[:_CANDIDATES_MAX]
        held = shows(candidates)
        smaller = [one for one, holds in zip(candidates, held, strict=True) if holds]
        if not smaller:
            return case
        case = smaller[0]
    return case


def size(case: Case) -> int:
    """The amount of text in a case."""
    return len(json.dumps([case["app"], case["inputs"]]))


def _smaller(case: Case) -> Iterator[Case]:
    """Cases that lack something; each text once."""
    inputs = case["inputs"]
    half = len(inputs) // 2
    if half > 1:
        yield {**case, "inputs": inputs[:half]}
        yield {**case, "inputs": inputs[half:]}
    for place in range(len(inputs)):
        yield {**case, "inputs": inputs[:place] + inputs[place + 1 :]}
    seen = {case["app"]}
    for tree in _lacking(parse_app(case["app"])):
        try:
            app = print_app(tree)
        except (MeshError, TypeError, ValueError, AssertionError):
            continue  # The rest is no app.
        if app not in seen and len(app) < len(case["app"]) + 20:
            seen.add(app)
            yield {**case, "app": app}


def _lacking(node: Any) -> Iterator[Any]:
    """Trees like ``node`` with one thing less: a member of a list, an option, an operand."""
    if isinstance(node, Binary):
        yield from (node.left, node.right)
    elif isinstance(node, Unary):
        yield node.operand
    elif isinstance(node, Call):
        yield from node.arguments
    if not is_dataclass(node) or isinstance(node, type | Enum):
        return
    for part in fields(node):
        if part.name in ("position", "annotations") or not part.init:
            continue
        value = getattr(node, part.name)
        if isinstance(value, tuple):
            for place, member in enumerate(value):
                yield replace(node, **{part.name: value[:place] + value[place + 1 :]})
                for other in _lacking(member):
                    changed = (*value[:place], other, *value[place + 1 :])
                    yield replace(node, **{part.name: changed})
        elif is_dataclass(value) and not isinstance(value, Enum):
            if part.default is None:
                yield replace(node, **{part.name: None})
            for other in _lacking(value):
                yield replace(node, **{part.name: other})


def outline(case: Case) -> str:
    """The parts of an app, without its constants: the same for findings with one cause."""
    words = "".join(c if c.isalnum() or c in "_.#" else " " for c in case["app"]).split()
    begin = list(itertools.dropwhile(lambda word: word != "from", words))
    return " ".join(word for word in begin if not word[0].isdigit())
