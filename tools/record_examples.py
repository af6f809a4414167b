"""``python -m tools.record_examples --oracle PROGRAM [FILE ..]``: expected output of the examples.

The reference engine runs each app of ``examples`` on its events, and its output is written to
``NAME.expected.jsonl``.  For an app with functions that the engine lacks, ``NAME.engine.siddhi``
has the same streams and queries without them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mesh.testing import app_tests
from tools.engine_answers import ask

if TYPE_CHECKING:
    from collections.abc import Sequence

_FOLDER = Path("examples")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.record_examples", description=__doc__)
    parser.add_argument("--oracle", type=Path, required=True, help="program that asks the engine")
    parser.add_argument("files", type=Path, nargs="*", help="apps; default: all with events")
    given = parser.parse_args(arguments)
    for path in given.files or example_apps(_FOLDER):
        twin = path.with_suffix(".engine.siddhi")
        text = (twin if twin.exists() else path).read_text(encoding="utf-8")
        case = app_tests.case_of(text, path.stem, app_tests.read(app_tests.events_path(path)))
        (answer,) = ask(given.oracle, [case])
        if answer["status"] != "ok" or answer.get("errors"):
            sys.exit(f"{path}: {answer['status']} {answer.get('errors')} {answer.get('log')}")
        events = app_tests.emitted(text, answer)
        lines = "".join(f"{event.line()}\n" for event in events)
        app_tests.expected_path(path).write_text(lines, encoding="utf-8")
        sys.stdout.write(f"{path}: {len(events)} events\n")


def example_apps(folder: Path) -> list[Path]:
    """The apps of a folder that have events."""
    return [
        path for path in sorted(folder.glob("*.siddhi")) if app_tests.events_path(path).exists()
    ]


if __name__ == "__main__":
    main()
