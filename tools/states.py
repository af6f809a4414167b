"""Recorder of operator states in the current format, which later versions must still read.

``python -m tools.states tests/cases/compat`` writes one file for each kind of operator below a
directory called after ``STATE_VERSION``: an app, its input, its state half-way as the host stores
it on the disk, and the output after that.  Files of a released version are never written again;
``docs/operators.md`` has the consequences.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from mesh.language.parser import parse
from mesh.operators.executor import STATE_VERSION, Executor, InputRun, OutputRun
from mesh.plan.bind import bind
from mesh.spark.instance_io import InputPosition, LocalState
from tools.cases import batch, values
from tools.state_apps import APPS, DEFINITIONS

if TYPE_CHECKING:
    from mesh.operators.base import State
    from mesh.plan.bound import BoundApp

#: Events before the state is taken, and in all.
_HALF: Final = 70
_COUNT: Final = 130
#: Events that are given at once.
_RUN: Final = 11
_START_MS: Final = 1_700_000_000_000
_CASE: Final = "case.json"
_NOWHERE: Final = InputPosition(())

#: Time, stream, values.
Event = tuple[int, str, list[Any]]
#: Position, stream, time and values, these as text: NaN equals itself then, and -0.0 is not 0.0.
Row = list[Any]


@dataclass(frozen=True, slots=True)
class Recorded:
    """State of ``app`` after the first ``half`` of ``events``, recorded with the later output."""

    app: str
    events: list[Event]
    half: int
    rows: list[Row]
    state: State


def record(text: str) -> bytes:
    """A file for an app, without the definitions that all have."""
    app = bind(parse(DEFINITIONS + text))
    events = _events()
    executor = _executor(app)
    _feed(executor, app, events, 0, _HALF)
    state = executor.snapshot()
    rows = _feed(executor, app, events, _HALF, _COUNT)
    case = {"app": DEFINITIONS + text, "events": events, "half": _HALF, "rows": rows}
    buffer = io.BytesIO()
    with tempfile.TemporaryDirectory() as directory, zipfile.ZipFile(buffer, "w") as archive:
        LocalState(Path(directory)).save(_NOWHERE, {}, state)
        _put(archive, _CASE, orjson.dumps(case))
        for path in sorted(Path(directory).iterdir()):
            _put(archive, path.name, path.read_bytes())
    return buffer.getvalue()


def _put(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    # A fixed date: equal content gives equal files.
    entry = zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0))
    archive.writestr(entry, content, zipfile.ZIP_DEFLATED)


def read(path: Path, directory: Path) -> Recorded:
    """A recorded file; its pieces are unpacked into ``directory``, and mapped from there."""
    with zipfile.ZipFile(path) as archive:
        archive.extractall(directory)
    case = orjson.loads((directory / _CASE).read_bytes())
    local = LocalState(directory)
    manifest = local.manifest(_NOWHERE)
    assert manifest is not None, "the manifest is beside the pieces"
    events = [(time_ms, stream, row) for time_ms, stream, row in case["events"]]
    return Recorded(case["app"], events, case["half"], case["rows"], local.load(manifest))


def go_on(recorded: Recorded) -> list[Row]:
    """The output of this version when it continues from a recorded state."""
    app = bind(parse(recorded.app))
    executor = _executor(app)
    executor.restore(recorded.state)
    return _feed(executor, app, recorded.events, recorded.half, len(recorded.events))


def _executor(app: BoundApp) -> Executor:
    targets = [q.target.name for q in app.queries]
    targets += [q.target.name for p in app.partitions for q in p.queries]
    return Executor(app, [name for name in targets if name.startswith("O")])


def _events() -> list[Event]:
    """Events of S and Q in the order of their times; the same ones each time."""
    chance = np.random.default_rng(11)
    times = _START_MS + np.cumsum(chance.integers(5, 90, _COUNT))
    numbers = np.round(chance.random(_COUNT) * 100, 2)
    keys = chance.integers(0, 4, _COUNT)
    of_s = chance.random(_COUNT) < 0.7
    found: list[Event] = []
    for n in range(_COUNT):
        k, i, d = f"k{keys[n]}", n % 9, float(numbers[n])
        if of_s[n]:
            found.append((int(times[n]), "S", [k, i, int(times[n]), d / 2, d, n % 3 == 0]))
        else:
            found.append((int(times[n]), "Q", [k, i, n * 7, d]))
    return found


def _feed(
    executor: Executor, app: BoundApp, events: list[Event], start: int, stop: int
) -> list[Row]:
    found: list[Row] = []
    for first in range(start, stop, _RUN):
        last = min(first + _RUN, stop)
        runs = []
        clocks = {}
        for stream in ("S", "Q"):
            known = [time_ms for time_ms, name, _ in events[:last] if name == stream]
            clocks[stream] = max(known, default=0)
            part = [event for event in events[first:last] if event[1] == stream]
            if part:
                runs.append(
                    InputRun(
                        stream,
                        np.arange(len(known) - len(part) + 1, len(known) + 1),
                        np.array([time_ms for time_ms, _, _ in part], dtype=np.int64),
                        batch(app.stream(stream), [row for _, _, row in part]),
                    )
                )
        for out in executor.run(runs, clocks):
            found += _rows(out)
    return sorted(found, key=lambda row: int(row[0]))


def _rows(out: OutputRun) -> list[Row]:
    told = zip(out.position.tolist(), out.time_ms.tolist(), values(out.rows), strict=True)
    return [[position, out.stream, time_ms, repr(row)] for position, time_ms, row in told]


def main() -> None:
    """Write the states of this version."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="where directories of versions are")
    parser.add_argument("names", nargs="*", help="only these apps")
    arguments = parser.parse_args()
    target = arguments.directory / str(STATE_VERSION)
    target.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or APPS:
        content = record(APPS[name])
        (target / f"{name}.zip").write_bytes(content)
        sys.stdout.write(f"{name}: {len(content)} bytes\n")


if __name__ == "__main__":
    main()
