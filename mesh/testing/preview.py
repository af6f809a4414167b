"""Preview: the outputs of a text on events, each with its cause, before a deploy.

    events ──▶ operators of the text, in this process ──▶ outputs, failures, differences

Nothing is published and no sink is called: sources and sinks are left out.  Tables and aggregations
in databases are in memory, and begin empty.  Time is that of the events, as in a cluster whose
clients send ``Mesh-Timestamp``: before each event the timers fire that are due by then.

The state begins empty, also that of a running app whose text is compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa

from mesh.errors import MeshError
from mesh.language.parser import parse_app
from mesh.language.printer import print_app
from mesh.language.syntax import AggregationDefinition, TableDefinition, find
from mesh.lineage.comparing import OutputItem, StreamComparison, side_by_side
from mesh.model.values import EventValues, JsonMapping, JsonObject
from mesh.operators.executor import Executor, InputRun
from mesh.operators.failures import FAILED
from mesh.plan.bind import bind
from mesh.plan.outside_calls import as_planned
from mesh.plan.supported import check_supported
from mesh.testing import app_tests
from mesh.testing.app_tests import TimedEvent, values_of
from mesh.testing.conformance.answers import event
from mesh.testing.conformance.cases import CaseClock, CaseError, batch
from mesh.testing.conformance.direct import plain_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.language.syntax import App
    from mesh.operators.executor import OutputRun
    from mesh.plan.bound import BoundApp

#: Events of one preview, and their outputs; bytes of the outputs.
EVENTS_MAX: Final = 10_000
OUTPUTS_MAX: Final = 50_000
BYTES_MAX: Final = 16 << 20
#: Failed events that are listed.
FAILED_MAX: Final = 1000
#: Events that are processed at once.
_CHUNK: Final = 250
#: Of times that are relative to the start of a case: there are none.
_CLOCK: Final = CaseClock(0, 0)
_SORTED: Final = orjson.OPT_SORT_KEYS


def exceeded(detail: str) -> MeshError:
    """The error of a preview that exceeds its limits: MESH-C172."""
    return MeshError(
        "MESH-C172",
        "the preview exceeds its limits",
        detail=detail,
        hint="Give it fewer events.  If one event is enough for this, the text has no end.",
    )


@dataclass(frozen=True, slots=True)
class Played:
    """The result of a text on events."""

    outputs: list[EventValues]
    failed: list[EventValues]
    failed_count: int
    #: When a timer is due next, milliseconds since 1970; None if time alone changes nothing.
    next_timer: int | None
    notes: list[str]


def answer(
    text: str,
    lines: str,
    stored: Sequence[tuple[int, str, JsonMapping]] = (),
    running: tuple[str, str] | None = None,
    keep: bool = False,
) -> EventValues:
    """The outputs of a text on events, as JSON values; docs/preview.md names them.

    Args:
        text: SiddhiQL, which can be deployed.
        lines: events as in a file of ``mesh test``.
        stored: events of streams: time, stream and values.
        running: name and text of a running app whose outputs are compared.
        keep: whether the answer has the YAML of a test.

    Raises:
        MeshError: MESH-U160 and MESH-U161 for events of another form, MESH-U162 for a text that
            fails, MESH-C172 for too much.
    """
    line_events = app_tests.parse(filter(str.strip, lines.split("\n")), "the events")
    events = [*line_events, *(TimedEvent(*one) for one in stored)]
    if line_events and stored:
        events.sort(key=lambda one: one.time_ms)
    if not events:
        raise MeshError(
            "MESH-U160", "the preview has no events", hint="Give events, or a stream that has some."
        )
    if len(events) > EVENTS_MAX:
        raise exceeded(f"It has {len(events):,} events; {EVENTS_MAX:,} are possible.")
    app = parse_app(text)
    played = play(app, events)
    result: JsonObject = {
        "app": app.name,
        "inputs": [
            {"time": one.time_ms, "stream": one.stream, "event": one.event} for one in events
        ],
        "outputs": played.outputs,
        "failed": played.failed,
        "failed_count": played.failed_count,
        "next_timer": played.next_timer,
        "notes": played.notes,
        "against": None,
    }
    if running is not None:
        name, other = running
        before = play(parse_app(other), events)
        result["against"] = {"app": name, **compared(before.outputs, played.outputs)}
        result["against"]["failed_count"] = before.failed_count
    if keep:
        test_text = text if not _stores(app) else print_app(without_stores(app))
        result["test"], notes = app_tests.test_of(test_text, events, played.outputs)
        result["notes"] = [*result["notes"], *notes]
    return result


def play(app: App, events: Sequence[TimedEvent], *, chunk_events: int = _CHUNK) -> Played:
    """The outputs of a parsed text, in the order in which they were emitted.

    Args:
        app: the text.
        events: in the order of their arrival.
        chunk_events: number of events that are processed at once.

    Raises:
        MeshError: as ``answer``.
    """
    bound = bind(as_planned(without_stores(app)))
    check_supported(bound)
    run = _Run(bound, events, chunk_events)
    try:
        run.all_events()
    except (MeshError, MemoryError, RecursionError):
        raise
    except Exception as error:
        raise MeshError(
            "MESH-U162",
            "the app fails on its events",
            detail=f"{type(error).__name__}: {error}.",
        ) from error
    run.outputs.sort(key=lambda pair: pair[0])
    notes = [
        f'"{name}" is in a database; here it is in memory, and begins empty'
        for name in _stores(app)
    ]
    notes += [f'no query reads stream "{name}"' for name in run.unread]
    outputs = [output for _, output in run.outputs]
    return Played(outputs, run.failed, run.failed_count, run.executor.wakeup_time(), notes)


class _Run:
    """The operators of a whole app with events that are known beforehand.

    They are processed in the order of the list; a number is a place in it, from 1.
    """

    def __init__(self, app: BoundApp, events: Sequence[TimedEvent], chunk_events: int) -> None:
        self._app, self._events, self._chunk_events = app, events, chunk_events
        fed = dict.fromkeys(one.stream for one in events if one.stream)
        outputs = [stream.name for stream in app.streams if stream.name not in fed]
        self.executor = Executor(app, [*outputs, FAILED], salt="preview")
        self.executor.keeps_order = True
        self._streams = {stream.name: stream for stream in app.streams}
        read = [name for name in self.executor.input_schemas if name in fed]
        #: By stream that a query reads: its place among them, and the time up to which it is known.
        self._rank = {name: place for place, name in enumerate(read)}
        self._clocks = dict.fromkeys(read, 0)
        #: By stream, the highest time of its events so far.
        self._latest: dict[str, int] = {}
        #: The number of each event that was processed, in the order of processing.
        self._processed: list[int] = []
        self._rows = self._size = 0
        self.unread = [name for name in fed if name not in self._rank]
        #: Positions and outputs.
        self.outputs: list[tuple[int, EventValues]] = []
        self.failed: list[EventValues] = []
        self.failed_count = 0

    def all_events(self) -> None:
        """Process the events; time passes where one has no stream."""
        waiting: list[tuple[int, TimedEvent]] = []
        for number, one in enumerate(self._events, 1):
            if one.stream:
                waiting.append((number, one))
                continue
            self._send(waiting)
            waiting = []
            self._pass(one.time_ms, number)
        self._send(waiting)

    def _send(self, entries: Sequence[tuple[int, TimedEvent]]) -> None:
        """Process events in their order, many at a time; output is counted between."""
        chunk: list[tuple[int, int, TimedEvent]] = []
        for number, one in entries:
            values_of(one, self._streams)
            if one.stream not in self._rank:
                continue
            # A late event keeps its place in its stream.
            time_ms = max(one.time_ms, self._latest.get(one.stream, one.time_ms))
            self._latest[one.stream] = time_ms
            place = time_ms, self._rank[one.stream]
            last = (chunk[-1][0], self._rank[chunk[-1][2].stream]) if chunk else place
            # The executor merges those of a chunk by this place; their order is that of the list.
            if place < last or (len(chunk) >= self._chunk_events and time_ms > last[0]):
                self._run(chunk)
                chunk = []
            chunk.append((time_ms, number, one))
        if chunk:
            self._run(chunk)

    def _run(self, chunk: Sequence[tuple[int, int, TimedEvent]]) -> None:
        """Process events, n > 0 of them: highest time of its stream so far, number, event."""
        runs = []
        for name in self._rank:
            entries = [(number, one) for _, number, one in chunk if one.stream == name]
            if entries:
                numbers = np.array([number for number, _ in entries], dtype=np.int64)
                times = np.array([one.time_ms for _, one in entries], dtype=np.int64)
                runs.append(InputRun(name, numbers, times, self._batch(name, entries)))
        # With several inputs an event waits until all of them are known beyond its time.
        clock_ms = chunk[-1][0] + (len(self._clocks) > 1)
        self._clocks = {name: max(now, clock_ms) for name, now in self._clocks.items()}
        self._processed += [number for _, number, _ in chunk]
        self._take(self.executor.run(runs, self._clocks, is_by_events=True))

    def _batch(self, stream: str, numbered: Sequence[tuple[int, TimedEvent]]) -> pa.RecordBatch:
        """The rows of events of a stream; MESH-U161 for one that does not fit."""
        schema = self._streams[stream]
        try:
            return batch(schema, [values_of(one, self._streams) for _, one in numbered], _CLOCK)
        except (CaseError, pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            if len(numbered) > 1:
                for one in numbered:
                    self._batch(stream, [one])
            number, _ = numbered[0]
            raise MeshError(
                "MESH-U161", f"event {number} does not fit its stream", detail=f"{error}."
            ) from error

    def _pass(self, time_ms: int, number: int) -> None:
        """Let time pass up to ``time_ms``, which is not earlier than that of earlier calls."""
        if not self._clocks or self.executor.plays_back:
            self._take(self.executor.step(max(time_ms, self.executor.now_ms)), number)
            return
        self._clocks = {name: max(now, time_ms) for name, now in self._clocks.items()}
        self._take(self.executor.run([], self._clocks, is_by_events=True), number)

    def _take(self, runs: Sequence[OutputRun], number: int | None = None) -> None:
        """Record output; ``number``: of the line with a time.  MESH-C172 for too much of it."""
        self._rows += sum(run.rows.num_rows for run in runs)
        self._size += sum(run.rows.nbytes for run in runs)
        if self._rows > OUTPUTS_MAX:
            raise exceeded(f"The text emits more than {OUTPUTS_MAX:,} events.")
        if self._size > BYTES_MAX:
            raise exceeded(f"The events that the text emits have more than {BYTES_MAX >> 20} MB.")
        for run in runs:
            assert run.order is not None, "the executor keeps it"
            causes = [self._cause(order, number) for order in run.order.tolist()]
            if run.stream == FAILED:
                self._fail(run, [cause for cause, _ in causes])
                continue
            schema = self._streams.get(run.stream)
            if schema is None:
                continue
            rows = zip(
                run.position.tolist(), run.time_ms.tolist(), plain_rows(run.rows), causes,
                strict=True,
            )  # fmt: skip
            for position, time_ms, values, (cause, is_timer) in rows:
                data = event(time_ms, values, schema.attributes)["data"]
                fields = {
                    "stream": run.stream,
                    "time": time_ms,
                    "event": dict(zip(schema.names, data, strict=True)),
                    "input": cause,
                    "timer": is_timer,
                }
                self.outputs.append((position, fields))

    def _fail(self, run: OutputRun, causes: Sequence[int]) -> None:
        self.failed_count += run.rows.num_rows
        for row, cause in zip(run.rows.to_pylist(), causes, strict=True):
            if len(self.failed) < FAILED_MAX:
                self.failed.append({**row, "event": orjson.loads(row["event"]), "input": cause})

    def _cause(self, order: int, number: int | None) -> tuple[int, bool]:
        """The number of the event at which a row was emitted, and whether a timer emitted it."""
        if number is not None:
            return number, True
        place, is_event = divmod(order, 2)
        return self._processed[min(place, len(self._processed) - 1)], not is_event


def _stores(app: App) -> list[str]:
    return [
        one.name
        for one in app.elements
        if isinstance(one, TableDefinition | AggregationDefinition)
        and find(one.annotations, "store") is not None
    ]


def without_stores(app: App) -> App:
    """An app whose tables and aggregations are all in memory."""
    stored = frozenset(_stores(app))
    elements = tuple(
        replace(one, annotations=tuple(a for a in one.annotations if a.name.lower() != "store"))
        if isinstance(one, TableDefinition | AggregationDefinition) and one.name in stored
        else one
        for one in app.elements
    )
    return replace(app, elements=elements)


def compared(before: Sequence[JsonMapping], after: Sequence[JsonMapping]) -> Any:
    """The outputs of a running text and of a draft side by side, stream by stream; JSON values.

    Rows are lined up as ``mesh compare`` does it after a fork: by their values, in their order.
    """
    streams = []
    for name in dict.fromkeys(one["stream"] for one in (*before, *after)):
        ours, theirs = _items(before, name), _items(after, name)
        counts = StreamComparison()
        rows = []
        for one in side_by_side(ours, theirs):
            counts.add(one)
            rows.append(
                {
                    "kind": one.kind,
                    "running": None if one.before is None else before[one.before.index],
                    "draft": None if one.after is None else after[one.after.index],
                }
            )
        fields = {kind: getattr(counts, kind) for kind in ("same", "new", "gone", "changed")}
        streams.append({"stream": name, **fields, "rows": rows})
    differs = any(one["new"] or one["gone"] or one["changed"] for one in streams)
    return {"differs": differs, "streams": streams}


def _items(outputs: Sequence[JsonMapping], stream: str) -> list[OutputItem]:
    return [
        OutputItem(
            stream, one["input"], place, one["time"], orjson.dumps(one["event"], option=_SORTED)
        )
        for place, one in enumerate(outputs)
        if one["stream"] == stream
    ]
