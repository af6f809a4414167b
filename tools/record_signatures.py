"""Record the reference engine's results for the calls in ``tests/cases/signatures`` again.

In two steps, with a run of the engine between them.  The program for that reads cases of ``name``
and ``app``, one JSON object a line, and answers with ``name``, ``status``, ``schemas`` and
``creation_error``:

    python -m tools.record_signatures tests/cases/signatures/*.txt --apps apps.jsonl
    python -m tools.record_signatures tests/cases/signatures/*.txt --answers answers.jsonl

The second rewrites the text after each ``=>``.  Commit the diff only when you understand it.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mesh.functions.catalogue import ExtensionRole
from tools.signatures import ARROW, STREAM, RecordedCall, kind_of, read_cases

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Ways in which a file's calls become apps, by the file's name.
_APPS: Final = {
    "scalars": "from S select {call} as r insert into Out;",
    "aggregators": "from S select {call} as r insert into Out;",
    "windows": "from S#window.{call} select i as r insert into Out;",
    "stream_functions": "from S#{call} select * insert into Out;",
    "incremental_aggregators": "define aggregation A from S select s, {call} as r group by s "
    "aggregate by l every sec; from S join A on S.s == A.s within '2020-**-** **:**:**' "
    "per 'seconds' select A.r as r insert into Out;",
}
#: The same of the kinds that definitions name: the role, then the name, then options.
_KINDS: Final = {
    ExtensionRole.SOURCE: "@source(type='{name}'{options}) define stream T (i int, s string); "
    "{query}",
    ExtensionRole.SINK: "@sink(type='{name}'{options}) define stream Out (i int, s string); "
    "{query}",
    ExtensionRole.SOURCE_MAPPER: "@source(type='inMemory', @map(type='{name}'{options})) "
    "define stream T (i int, s string); {query}",
    ExtensionRole.SINK_MAPPER: "@sink(type='inMemory', topic='t', @map(type='{name}'{options})) "
    "define stream Out (i int, s string); {query}",
    ExtensionRole.STORE: "@store(type='{name}'{options}) define table T (i int); {query}",
    ExtensionRole.DISTRIBUTION: "@sink(type='inMemory', @distribution(strategy='{name}'{options}, "
    "@destination(topic='a'), @destination(topic='b'))) "
    "define stream Out (i int, s string); {query}",
    ExtensionRole.SCRIPT: "define function f[{name}] return int {{ return 1; }}; {query}",
}
_QUERY: Final = "from S select i, s insert into Out;"
_NOT_THE_REASON: Final = (
    re.compile(r"^io\.siddhi[\w.]+: |^java\.lang\."),
    re.compile(r"^Error on .*? near '.*?'\. ?", re.DOTALL),
    re.compile(r" Supported parameter overloads are .*", re.DOTALL),
    re.compile(r" \(java\.lang\..*|; define stream .*", re.DOTALL),
)


def app(file: Path, case: RecordedCall) -> str:
    """The app that tests ``case``."""
    if file.stem in _APPS:
        return f"{STREAM} {_APPS[file.stem].format(call=case.call)}"
    role, name, options = kind_of(case.call)
    given = "".join(f", {key}='{value}'" for key, value in options.items())
    return f"{STREAM} {_KINDS[role].format(name=name, options=given, query=_QUERY)}"


def answer(file: Path, told: Mapping[str, Any]) -> str:
    """The text after the arrow, from the engine's result."""
    if told["status"] == "ok":
        attributes = told["schemas"]["Out"]
        if file.stem in ("windows", "extensions"):
            return "accepted"
        if file.stem == "stream_functions":
            added = attributes[STREAM.count(",") + 1 :]
            return f"adds ({', '.join(f'{name} {kind}' for name, kind in added)})"
        return str(attributes[0][1])
    error = told["creation_error"]
    reason = error.get("cause") or error["message"]
    for pattern in _NOT_THE_REASON:
        reason = pattern.sub("", reason)
    return f"refused: {' '.join(reason.split())}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the apps, or read the answers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--apps", type=Path, help="write the apps to ask about")
    what.add_argument("--answers", type=Path, help="rewrite the cases with these answers")
    options = parser.parse_args(arguments)
    # The engine doesn't have the documented functions.
    options.files = [file for file in options.files if file.stem != "documented"]
    if options.apps is not None:
        lines = [
            json.dumps({"name": _name(file, case), "app": app(file, case), "outputs": ["Out"]})
            for file in options.files
            for case in read_cases(file)
        ]
        options.apps.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return
    told = {}
    for line in options.answers.read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        told[one["name"]] = one
    for file in options.files:
        _rewrite(file, told)


def _name(file: Path, case: RecordedCall) -> str:
    return f"{file.stem}:{case.call}"


def _rewrite(file: Path, told: Mapping[str, Mapping[str, Any]]) -> None:
    lines = file.read_text(encoding="utf-8").splitlines()
    for case in read_cases(file):
        found = answer(file, told[_name(file, case)])
        lines[case.line - 1] = f"{case.call} {ARROW} {found}"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
