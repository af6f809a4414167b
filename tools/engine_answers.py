"""Case files of whole apps with the reference engine's answers: ``tests/cases/conformance``.

A file is one category, JSON lines: a case as ``mesh.testing.conformance`` reads it, and ``expect``,
the compact answer of the engine.  ``differences.txt`` beside them lists the cases with another
answer of ours, a line each, ``category/name | reason``; the reason ``not yet`` marks a difference
that is to be removed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mesh.testing.conformance.answers import compact
from mesh.testing.conformance.cases import lines, read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NOT_YET: Final = "not yet"
#: Variables of the environment that the ``java`` command uses.
_JAVA_OPTIONS: Final = "JDK_JAVA_OPTIONS"
#: Code that fails often is compiled to fail without a message.  The engine's report of its failure,
#: by which ``explanations`` recognises them, would be missing now and then.
_WHOLE_LOG: Final = "-XX:-OmitStackTraceInFastThrow"
#: The fields of a case that are kept, in this order.
_FIELDS: Final = ("name", "app", "inputs", "outputs", "queries", "mode", "start_ts", "playback")


@dataclass(frozen=True, slots=True)
class Recorded:
    """A case and the engine's answer to it, compact."""

    category: str
    case: Mapping[str, Any]
    expect: Mapping[str, Any]

    @property
    def name(self) -> str:
        """``category/name``, unique over all files."""
        return f"{self.category}/{self.case['name']}"


@cache
def load(directory: Path) -> tuple[Recorded, ...]:
    """All cases below ``directory``, file by file, read once.

    Raises:
        ValueError: two cases of a file have one name.
    """
    found = []
    for path in sorted(directory.glob("*.jsonl")):
        cases = read(path)
        names = [case["name"] for case in cases]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"{path.name}: names given twice: {', '.join(sorted(twice))}")
        for case in cases:
            expect = case.pop("expect")
            found.append(Recorded(path.stem, case, expect))
    return tuple(found)


def differences(directory: Path) -> dict[str, str]:
    """The reason of each known difference, by name.

    Raises:
        ValueError: a line has no reason.
    """
    path = directory / "differences.txt"
    reasons = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if not line or line.startswith("#"):
            continue
        name, divider, reason = line.partition(" | ")
        if not divider or not reason:
            raise ValueError(f"differences.txt: no reason in: {line}")
        reasons[name] = reason
    return reasons


def ask(
    oracle: Path,
    cases: Sequence[Mapping[str, Any]],
    options: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """The engine's whole answers to ``cases``, in order.

    Args:
        oracle: a program with two arguments: a file of cases and one for the answers.
        cases: as ``mesh.testing.conformance`` reads them.
        options: further arguments of the program.
        variables: further variables of its environment.
    """
    with tempfile.TemporaryDirectory() as directory:
        questions, answers = Path(directory, "cases.jsonl"), Path(directory, "out.jsonl")
        questions.write_text(lines(cases), encoding="utf-8")
        java = f"{os.getenv(_JAVA_OPTIONS, '')} {_WHOLE_LOG}".strip()
        subprocess.run(
            [sys.executable, str(oracle), str(questions), str(answers), "--jobs", "1", *options],
            check=True,
            stdout=subprocess.DEVNULL,
            env=os.environ | dict(variables or {}) | {_JAVA_OPTIONS: java},
        )
        return read(answers)


def write(path: Path, cases: Sequence[Mapping[str, Any]], expect: Sequence[Any]) -> None:
    """Write a case file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = [
        {key: case[key] for key in _FIELDS if case.get(key) is not None} | {"expect": answer}
        for case, answer in zip(cases, expect, strict=True)
    ]
    path.write_text(lines(kept), encoding="utf-8")


def record(oracle: Path, path: Path, new: Sequence[Mapping[str, Any]]) -> tuple[int, list[str]]:
    """Run the engine on all cases of a file and ``new`` ones, and write them with its answers.

    A new case replaces one with its name; a case without an answer of the engine is left out.

    Returns:
        The number of cases in the file, and the names of those left out.
    """
    cases: dict[str, Mapping[str, Any]] = {}
    for case in [*(read(path) if path.exists() else ()), *new]:
        cases[case["name"]] = {key: case[key] for key in _FIELDS if key in case}
    asked = list(cases.values())
    answers = ask(oracle, asked)
    pairs = list(zip(asked, answers, strict=True))
    answered = [(c, a) for c, a in pairs if a["status"] in ("ok", "creation_error")]
    write(path, [c for c, _ in answered], [compact(a) for _, a in answered])
    left_out = [c["name"] for c, a in pairs if a["status"] not in ("ok", "creation_error")]
    return len(answered), left_out
