"""Validity cases: app texts with the reference engine's verdict, kept in case files.

A case file is blocks divided by blank lines; a block of comments alone is prose.

    # a filter takes a condition                  the name: words that say the rule
    # set: LIMIT=10                               variables of ``${..}``, if a case needs them
    define stream S (a int);                      the app
    from S[a] select a insert into Out;
    query: from T select a                        an on-demand query, if the case is about one
    ----
    refused                                       or ``accepted``
    # engine: .. at 2:7-2:8: ..                   the engine's message, and its position

After ``accepted`` follow the attributes of every stream that has no ``define stream``, one line a
stream, and those of the on-demand query as ``query (..)``.  Errors that the engine finds only when
events arrive are accepted.

    python -m tools.validity record --oracle PROGRAM [FILE ..]

writes the verdicts again; PROGRAM gets a file of cases and an output file, JSON lines both.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mesh.errors import MeshError
from mesh.language.parser import parse_app, parse_on_demand_query
from mesh.language.substitution import substitute
from mesh.plan.bind import bind, bind_on_demand
from mesh.plan.bound import AnswerOutput
from tools import engine_answers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

DIVIDER: Final = "----"
_QUERY: Final = "query:"
_VARIABLE: Final = "# set:"
_REMARK_LENGTH_MAX: Final = 400
_DEFINED: Final = re.compile(r"\bdefine\s+stream\s+([#!]?)(?:`([^`]+)`|(\w+))", re.IGNORECASE)
_GENERATED_NAME: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on an app."""

    accepted: bool
    #: ``Out (a int, b double)``, sorted; empty when refused.
    schemas: tuple[str, ...] = ()
    #: Comment lines: the engine's message.  Not compared.
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(["accepted" if self.accepted else "refused", *self.schemas, *self.remarks])


@dataclass(frozen=True, slots=True)
class Case:
    """An app, perhaps with an on-demand query, and the verdict recorded for it."""

    #: ``{file}/{words}``.
    name: str
    app: str
    query: str | None = None
    variables: tuple[tuple[str, str], ...] = ()
    verdict: Verdict | None = None

    def __str__(self) -> str:
        lines = [f"# {self.name.split('/', 1)[1]}"]
        lines += [f"{_VARIABLE} {name}={value}" for name, value in self.variables]
        lines.append(self.app)
        if self.query is not None:
            lines.append(f"{_QUERY} {self.query}")
        lines.append(DIVIDER)
        if self.verdict is not None:
            lines.append(str(self.verdict))
        return "\n".join(lines)


def read(path: Path) -> tuple[str | Case, ...]:
    """The blocks of a case file: prose unchanged, and cases.

    Raises:
        ValueError: a block is no case, or two have one name.
    """
    blocks = re.split(r"\n\n+", path.read_text(encoding="utf-8").strip("\n"))
    read_blocks = [_block(block, path.stem) for block in blocks]
    names = [block.name for block in read_blocks if isinstance(block, Case)]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{path.name}: names given twice: {', '.join(sorted(twice))}")
    return tuple(read_blocks)


def cases(path: Path) -> tuple[Case, ...]:
    """The cases of a file."""
    return tuple(block for block in read(path) if isinstance(block, Case))


def write(path: Path, blocks: Iterable[str | Case]) -> None:
    """Write a case file."""
    path.write_text("\n\n".join(map(str, blocks)) + "\n", encoding="utf-8")


def _block(text: str, stem: str) -> str | Case:
    lines = text.split("\n")
    if all(line.startswith("#") for line in lines):
        return text
    if not lines[0].startswith("# ") or DIVIDER not in lines:
        raise ValueError(f"{stem}: a block without a name or without {DIVIDER}:\n{text}")
    at = lines.index(DIVIDER)
    given, answer = lines[1:at], lines[at + 1 :]
    variables = []
    while given and given[0].startswith(_VARIABLE):
        name, _, value = given.pop(0).removeprefix(_VARIABLE).strip().partition("=")
        variables.append((name, value))
    app, marker, query = "\n".join(given).partition(f"\n{_QUERY} ")
    return Case(
        name=f"{stem}/{lines[0].removeprefix('# ')}",
        app=app,
        query=query if marker else None,
        variables=tuple(variables),
        verdict=_verdict(answer, text) if answer else None,
    )


def _verdict(lines: Sequence[str], text: str) -> Verdict:
    if lines[0] not in ("accepted", "refused"):
        raise ValueError(f"neither accepted nor refused:\n{text}")
    return Verdict(
        accepted=lines[0] == "accepted",
        # An inner stream's name starts with '#' too.
        schemas=tuple(line for line in lines[1:] if not line.startswith("# ")),
        remarks=tuple(line for line in lines[1:] if line.startswith("# ")),
    )


def defined_streams(app: str) -> frozenset[str]:
    """The names that ``define stream`` gives in a text, whatever it is worth otherwise."""
    return frozenset(mark + (quoted or name) for mark, quoted, name in _DEFINED.findall(app))


def judge(case: Case) -> Verdict:
    """Our own verdict on a case, as one recorded of the engine looks."""
    try:
        bound = bind(parse_app(substitute(case.app, dict(case.variables))))
        if case.query is not None:
            asked = bind_on_demand(parse_on_demand_query(case.query), bound)
    except MeshError as error:
        return Verdict(False, (), (f"# mesh: {error}",))
    defined = defined_streams(case.app)
    schemas = [
        schema_line(stream.name, ((a.name, str(a.type)) for a in stream.attributes))
        for stream in bound.streams
        if stream.name not in defined
    ]
    if case.query is not None and isinstance(asked.action, AnswerOutput):
        answered = ((a.name, str(a.type)) for a in asked.action.target.attributes)
        schemas.append(schema_line("query", answered))
    return Verdict(True, tuple(sorted(schemas)))


def schema_line(name: str, attributes: Iterable[tuple[str, str]]) -> str:
    """A stream and its attributes as case files show them."""
    return f"{name} ({', '.join(f'{attribute} {kind}' for attribute, kind in attributes)})"


# Running the engine


def ask(oracle: Path, asked: Sequence[Case]) -> list[Verdict]:
    """The engine's verdicts on ``asked``, in order.

    Args:
        oracle: a program with two arguments: a file of cases and one for the answers.
        asked: cases; their variables are set for all of them.

    Raises:
        ValueError: two cases set one variable differently, or an answer is no verdict.
    """
    variables: dict[str, str] = {}
    for case in asked:
        for name, value in case.variables:
            if variables.setdefault(name, value) != value:
                raise ValueError(f"{case.name}: {name} is something else in another case")
    found = engine_answers.ask(oracle, [_question(case) for case in asked], variables=variables)
    return [_answer(case, answer) for case, answer in zip(asked, found, strict=True)]


def _question(case: Case) -> dict[str, Any]:
    steps = [] if case.query is None else [{"query": case.query}]
    return {"name": case.name, "app": case.app, "inputs": steps, "queries": []}


def _answer(case: Case, answer: Mapping[str, Any]) -> Verdict:
    if answer["status"] == "creation_error":
        return Verdict(False, (), (_remark(answer["creation_error"]),))
    if answer["status"] != "ok":
        raise ValueError(f"{case.name}: the engine answered {answer}")
    defined = defined_streams(case.app)
    schemas = [
        schema_line(name, _attributes(schema))
        for name, schema in answer.get("schemas", {}).items()
        if name not in defined
    ]
    for done in answer.get("ondemand", []):
        if "error" in done:
            return Verdict(False, (), (_remark(done["error"]),))
        if done["schema"] and done["query"].lower().startswith("from"):  # others give the table's
            schemas.append(schema_line("query", _attributes(done["schema"])))
    return Verdict(True, tuple(sorted(schemas)))


def _attributes(schema: Iterable[Any]) -> list[tuple[str, str]]:
    return [(str(name), str(kind)) for name, kind in schema]


def _remark(error: Mapping[str, Any]) -> str:
    where = ""
    if error.get("start") and error.get("end"):
        (line, column), (last_line, last_column) = error["start"], error["end"]
        where = f" at {line}:{column}-{last_line}:{last_column}"
    message = " ".join(str(error.get("message")).split())
    message = _GENERATED_NAME.sub("..", message)
    if len(message) > _REMARK_LENGTH_MAX:
        message = message[:_REMARK_LENGTH_MAX] + " .."
    return f"# engine: {error['type']}{where}: {message}"


def record(oracle: Path, paths: Sequence[Path]) -> int:
    """Write the engine's verdicts into case files; returns the number of cases."""
    files = {path: read(path) for path in paths}
    asked = [block for blocks in files.values() for block in blocks if isinstance(block, Case)]
    verdicts = {case.name: verdict for case, verdict in zip(asked, ask(oracle, asked), strict=True)}
    for path, blocks in files.items():
        done = [
            replace(block, verdict=verdicts[block.name]) if isinstance(block, Case) else block
            for block in blocks
        ]
        write(path, done)
    return len(asked)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.validity")
    commands = parser.add_subparsers(required=True)
    recording = commands.add_parser("record", help="write the engine's verdicts into case files")
    recording.add_argument("--oracle", type=Path, required=True, help="program that asks it")
    recording.add_argument("files", type=Path, nargs="*", help="case files; none: all of them")
    given = parser.parse_args(arguments)
    paths = given.files or sorted(Path("tests/cases/siddhiql").glob("*.txt"))
    count = record(given.oracle, [path for path in paths if path.name != "differences.txt"])
    sys.stdout.write(f"{count} cases recorded\n")


if __name__ == "__main__":
    main()
