"""Tests of apps as data: events in, expected events out, played in process without Spark and NATS.

An app ``NAME.siddhi`` has two files next to it, JSON lines:

    NAME.events.jsonl      {"time": ms since 1970, "stream": "S", "event": {"attribute": value}},
                           in order of time; a line with a time alone lets time pass
    NAME.expected.jsonl    the same for every event that the app emits, in the order of each stream

Time is that of the events, as in a cluster whose clients send ``Mesh-Timestamp``.

Tests of ``mesh test`` from events that were played: YAML with a case for them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

import orjson
import yaml

from mesh.errors import MeshError
from mesh.language.parser import parse_app
from mesh.model.types import AttributeType
from mesh.model.values import JsonMapping, JsonObject
from mesh.plan.bind import bind
from mesh.plan.outside_calls import as_planned
from mesh.testing.conformance import direct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from mesh.model.types import StreamSchema


_FORM: Final = '{"time": 1767258000000, "stream": "S", "event": {"a": 1}}'
#: Differences that are listed.
_SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class TimedEvent:
    """One line of a file: an event of a stream, or with an empty stream a time alone."""

    time_ms: int
    stream: str = ""
    event: JsonMapping | None = None

    def line(self) -> str:
        """The line of a file, without its end."""
        return orjson.dumps(
            {"time": self.time_ms, "stream": self.stream, "event": self.event}
        ).decode()


def events_path(app: Path) -> Path:
    """The file of the events that the test of an app sends."""
    return app.with_suffix(".events.jsonl")


def expected_path(app: Path) -> Path:
    """The file of the events that the test of an app expects."""
    return app.with_suffix(".expected.jsonl")


def read(path: Path) -> list[TimedEvent]:
    """The lines of a file.

    Raises:
        MeshError: MESH-U120 for a file that can't be read, MESH-U160 for a line of another form.
    """
    try:
        # A string may have what other lines end with, as U+2028.
        texts = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise MeshError(
            "MESH-U120",
            f'file "{path}" can\'t be read',
            detail=f"{getattr(error, 'strerror', None) or error}.",
            hint=_hint(path) if isinstance(error, FileNotFoundError) else None,
        ) from error
    return parse(texts if texts != [""] else (), str(path))


def parse(lines: Iterable[str], where: str) -> list[TimedEvent]:
    """The events of lines; MESH-U160 for a line of another form.  ``where``: for the message."""
    events = []
    for number, text in enumerate(lines, 1):
        try:
            match orjson.loads(text):
                case {"time": int(time_ms), "stream": str(stream), "event": dict(event)}:
                    events.append(TimedEvent(time_ms, stream, event))
                case {"time": int(time_ms), **rest} if not rest:
                    events.append(TimedEvent(time_ms))
                case _:
                    raise ValueError("it lacks time, stream or event")
        except ValueError as error:
            raise MeshError(
                "MESH-U160",
                f"line {number} of {where} is no event with a time",
                detail=f"{error}.",
                hint=f"It has the form {_FORM}.",
            ) from error
    return events


def _hint(path: Path) -> str | None:
    """The use of a file of a test that is missing."""
    if path.name.endswith(".expected.jsonl"):
        return "'mesh test --rewrite' writes the output there; read it."
    if path.name.endswith(".events.jsonl"):
        return f"It has the events that the test sends, one a line: {_FORM}."
    return None


def case_of(text: str, name: str, events: Iterable[TimedEvent]) -> JsonObject:
    """The test as a case of ``mesh.testing.conformance``.

    Raises:
        MeshError: MESH-L* and MESH-P* of the text; MESH-U161 for an event that does not fit.
    """
    streams = {stream.name: stream for stream in bind(as_planned(parse_app(text))).streams}
    steps: list[JsonObject] = []
    for one in events:
        if not one.stream:
            steps.append({"advance_to": one.time_ms})
            continue
        data = values_of(one, streams)
        steps.append({"stream": one.stream, "ts": one.time_ms, "data": data})
    return {"name": name, "app": text, "inputs": steps, "mode": "playback"}


def values_of(one: TimedEvent, streams: Mapping[str, StreamSchema]) -> list[Any]:
    """The values of an event in the order of its stream; MESH-U161 for one that does not fit."""
    if one.stream not in streams:
        raise MeshError(
            "MESH-U161",
            f'the app defines no stream "{one.stream}"',
            detail=f"An event of it has the time {one.time_ms}.",
        )
    attributes = streams[one.stream].attributes
    names = [attribute.name for attribute in attributes]
    event = one.event or {}
    if set(names) != set(event):
        raise MeshError(
            "MESH-U161",
            f'event of stream "{one.stream}" at {one.time_ms} has other attributes',
            detail=f"It has {', '.join(event)}; the stream has {', '.join(names)}.",
        )
    return [
        _json_text(event[a.name]) if a.type is AttributeType.STRING else event[a.name]
        for a in attributes
    ]


def _json_text(value: Any) -> Any:
    """A value for a text: lists and objects are JSON in it, as mappers read them."""
    return orjson.dumps(value).decode() if isinstance(value, dict | list) else value


def emitted(text: str, answer: JsonMapping) -> list[TimedEvent]:
    """The events of an answer to ``case_of``, in the order in which they were emitted."""
    schemas = {stream.name: stream for stream in bind(as_planned(parse_app(text))).streams}
    pairs = []
    for name, events in answer["streams"].items():
        names = [attribute.name for attribute in schemas[name].attributes]
        for one in events:
            event = dict(zip(names, one["data"], strict=True))
            pairs.append((one["seq"], TimedEvent(one["ts"], name, event)))
    return [event for _, event in sorted(pairs, key=lambda pair: pair[0])]


def play(text: str, events: Iterable[TimedEvent]) -> list[TimedEvent]:
    """Run an app on events and return what it emits on all streams that the events don't feed.

    Raises:
        MeshError: MESH-L* and MESH-P* of the text; MESH-U161 for an event that does not fit;
            MESH-U162 for an app that fails.
    """
    answer = direct.answer(case_of(text, "test", events))
    errors = [str(error["message"]) for error in answer.get("errors", ())]
    if answer["status"] != "ok" or errors:
        reason = answer.get("error") or "; ".join(errors[:3])
        raise MeshError("MESH-U162", "the app fails on its test", detail=f"{reason}.")
    return emitted(text, answer)


def differences(actual: Sequence[TimedEvent], expected: Sequence[TimedEvent]) -> list[str]:
    """Differences stream by stream, at most ten; none if each stream has the expected events."""
    lines = []
    for stream in sorted({one.stream for one in (*actual, *expected)}):
        ours = [one.line() for one in actual if one.stream == stream]
        theirs = [one.line() for one in expected if one.stream == stream]
        for number, (left, right) in enumerate(zip_longest(ours, theirs), 1):
            if left != right:
                lines.append(
                    f"{stream}, event {number}: {left or 'nothing'}\n"
                    f"{' ' * len(stream)}  expected: {right or 'nothing'}"
                )
    return lines[:_SHOWN_MAX]


def test_of(
    text: str, events: Sequence[TimedEvent], outputs: Sequence[JsonMapping]
) -> tuple[str, list[str]]:
    """The YAML of a test that an app passes, and notes about it.

    Args:
        text: SiddhiQL; it is in the YAML.
        events: that the case sends, at least one.
        outputs: of the preview, with ``stream`` and ``event``.

    Raises:
        MeshError: as ``app_tests.play``.
    """
    results: dict[str, list[Any]] = {}
    for one in play(text, events):
        results.setdefault(one.stream, []).append(_plain(one.event))
    shown: dict[str, list[Any]] = {}
    for output in outputs:
        shown.setdefault(output["stream"], []).append(_plain(output["event"]))
    notes = []
    if results != shown:
        notes = ["the test expects other events: in 'mesh test' timers fire when an event arrives"]
    begin_ms = min(one.time_ms for one in events)
    lines = [
        *_text(text),
        "cases:",
        "- name: preview",
        f"  start: {_moment(begin_ms)}",
        "  send:",
    ]
    for sent in events:
        step: JsonObject = {"at": f"{sent.time_ms - begin_ms} ms"}
        if sent.stream:
            step = {"stream": sent.stream, "event": sent.event, **step}
        lines.append(f"  - {_flow(step)}")
    lines.append("  expect:" if results else "  expect: {}")
    for stream, rows in results.items():
        lines.append(f"    {_flow(stream)}:")
        lines += [f"    - {_flow(row)}" for row in rows]
    return "\n".join(lines) + "\n", notes


# A function of this name is no test of pytest.
test_of.__test__ = False  # type: ignore[attr-defined]


def _text(text: str) -> list[str]:
    """The lines with the app, as they are where YAML allows it."""
    lines = text.removesuffix("\n").split("\n")
    if not all(map(str.isprintable, lines)):
        return [f"app: {json.dumps(text)}"]
    # The number is the indentation: the first line may have some of its own.
    return ["app: |2", *(f"  {line}" if line else "" for line in lines)]


def _moment(time_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise MeshError(
            "MESH-U161", f"no test can begin at {time_ms} ms", detail=f"{error}."
        ) from error
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(event: Any) -> Any:
    """An event with NaN and infinities as floats."""
    return {
        name: float(value["v"])
        if isinstance(value, dict) and value.get("$t") in ("float", "double")
        else value
        for name, value in event.items()
    }


def _flow(value: object) -> str:
    """A value in a line of YAML: JSON, where that is YAML of the same value."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    if text.isprintable() and "NaN" not in text and "Infinity" not in text:
        return text
    return yaml.safe_dump(value, default_flow_style=True, width=10**9, sort_keys=False).strip()
