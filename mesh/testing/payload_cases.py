"""Tests of an app's sources, sinks and queries in one YAML file, played without a cluster.

    app: orders.siddhi                     # beside the file, or the text itself
    cases:
    - name: a dear order leaves
      send:
      - {stream: Orders, payload: '{"event":{"item":"lamp","price":120.0}}'}
      - {stream: Orders, event: {item: pen, price: 1.0}, at: 5 sec}
      - {at: 10 min}                       # time passes
      expect: {Dear: [{item: lamp, price: 120.0}]}
      payloads: {Dear: ['{"event":{"item":"lamp","price":120.0}}']}
      errors: []                           # a part of each reason why a payload can't be read
      start: 2026-01-01T00:00:00Z          # this time by default

A payload goes through the mapper of its stream's source, and an emitted event through that of its
sink.  ``at`` is the time since the start of the case.  In a test of pytest:

    @pytest.mark.parametrize("case", read(Path("orders.yaml")), ids=str)
    def test_orders(case): case.check()
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa
import yaml

from mesh.connect.spec import Kind, Role, value_of
from mesh.errors import MeshError
from mesh.language.parser import parse_app
from mesh.mapping.events import Refusal
from mesh.model.values import EventValues, JsonMapping, JsonObject
from mesh.plan.bind import bind
from mesh.plan.connectors import connector_of, make_mapper
from mesh.testing import app_tests
from mesh.testing.app_tests import TimedEvent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Time at which a case without ``start`` begins: 2026-01-01.
START_MS: Final = 1_767_225_600_000
_STEP: Final = {"stream", "payload", "event", "at", "properties"}
_CASE: Final = {"name", "send", "expect", "payloads", "errors", "start"}


@dataclass(frozen=True, slots=True)
class PayloadCase:
    """One case of a file."""

    name: str
    #: Text of the app.
    text: str
    send: Sequence[JsonMapping] = ()
    #: Events by stream.
    expect: Mapping[str, Sequence[JsonMapping]] = field(default_factory=dict)
    #: Payloads by stream of a sink: texts, bytes, or values that the payload is the JSON of.
    payloads: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    errors: Sequence[str] | None = None
    #: The file that positions in the text are of.
    path: Path = Path("app.siddhi")
    #: Time at which it begins, milliseconds since 1970.
    start: int = START_MS

    def __str__(self) -> str:
        return self.name

    def check(self) -> None:
        """Raise ``AssertionError`` with the differences, if there are any."""
        lines = self.differences()
        assert not lines, "\n".join([f"{self.name}:", *lines])

    def differences(self) -> list[str]:
        """The differences from what is expected.

        Raises:
            MeshError: the app or a step is invalid, or the app fails.
        """
        sources, sinks = _mappers(self.text)
        events, reasons = self._events(sources)
        sent = [one for one in events if one.stream]
        all_events = [*sent, *map(_plain, app_tests.play(self.text, events))]
        lines: list[str] = []
        for stream, expected in self.expect.items():
            actual = [_json(dict(one.event or {})) for one in all_events if one.stream == stream]
            lines += _compared(f"{stream}, event", actual, [_json(dict(one)) for one in expected])
        for stream, payloads in self.payloads.items():
            if stream not in sinks:
                raise _wrong(f'payloads of stream "{stream}", which has no sink')
            mapper, schema = sinks[stream]
            encoded = _encoded(mapper, schema, [one for one in all_events if one.stream == stream])
            actual = [_as(expected, data) for expected, data in zip_longest(payloads, encoded)]
            lines += _compared(f"{stream}, payload", actual, [_shown(one) for one in payloads])
        for number, (reason, part) in enumerate(zip_longest(reasons, self.errors or ()), 1):
            if reason is None or part is None or part not in reason:
                lines += _compared(f"error {number}", [reason or ""], [part or ""])
        return lines

    def _events(self, sources: JsonMapping) -> tuple[list[TimedEvent], list[str]]:
        """The events of the steps, and the reasons against payloads that can't be read."""
        at_ms, events, reasons = 0, list[TimedEvent](), list[str]()
        for step in self.send:
            if not isinstance(step, dict) or not set(step) <= _STEP:
                raise _wrong(f"a step with other names than {', '.join(sorted(_STEP))}: {step}")
            at_ms = _duration(step["at"]) if "at" in step else at_ms
            stream, time_ms = str(step.get("stream") or ""), self.start + at_ms
            if "payload" in step:
                if stream not in sources:
                    raise _wrong(f'a payload for stream "{stream}", which has no source')
                body = step["payload"]
                payload = body if isinstance(body, bytes) else _text(body).encode()
                properties = {str(k).lower(): str(v) for k, v in step.get("properties", {}).items()}
                decoded = sources[stream].decode([payload], [properties])
                reasons += [reason for _, _, reason in decoded.errors]
                # Columns of the connector may follow those of the stream.
                names = sources[f"{stream} names"]
                events += [
                    TimedEvent(time_ms, stream, {name: row[name] for name in names})
                    for row in decoded.rows.to_pylist()
                ]
            else:
                events.append(TimedEvent(time_ms, stream, step.get("event")))
        return events, reasons


def read(path: Path) -> list[PayloadCase]:
    """The cases of a file.

    Raises:
        MeshError: MESH-U120 for a file that can't be read, MESH-U160 for one of another form.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict) or set(document) != {"app", "cases"}:
            raise _wrong(f"{path} has other names than app and cases")
        app = str(document["app"])
        is_text = "\n" in app or ";" in app
        of = path.with_name(f"{path.name} (app)") if is_text else path.parent / app
        text = app if is_text else of.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MeshError("MESH-U120", f'file "{path}" can\'t be read', detail=f"{error}.") from error
    except yaml.YAMLError as error:
        raise _wrong(f"{path} is no YAML: {error}") from error
    cases = document["cases"]
    for case in cases if isinstance(cases, list) else [None]:
        if not isinstance(case, dict) or not {"name", "send"} <= set(case) <= _CASE:
            raise _wrong(f"{path} has a case with other names than {', '.join(sorted(_CASE))}")
    return [
        PayloadCase(text=text, path=of, **{**case, "start": _start(case.get("start"))})
        for case in cases
    ]


def _mappers(text: str) -> tuple[EventValues, EventValues]:
    """Mappers of the first source and the first sink by stream; those of sinks with a schema."""
    bound = bind(parse_app(text))
    sources: JsonObject = {}
    sinks: JsonObject = {}
    for name, annotation in bound.stream_annotations:
        if annotation.name.lower() not in ("source", "sink"):
            continue
        connector, stream = connector_of(annotation), bound.stream(name)
        if connector.role is Role.SOURCE and name not in sources:
            sources[name], sources[f"{name} names"] = make_mapper(connector, stream), stream.names
        elif connector.role is Role.SINK:
            sinks.setdefault(name, (make_mapper(connector, stream), stream.arrow))
    return sources, sinks


def _encoded(mapper: Any, schema: pa.Schema, events: Sequence[TimedEvent]) -> list[bytes]:
    """The payloads of events; a mapper that groups them makes one of those of a time."""
    rows = [dict(one.event or {}) for one in events]
    payloads = list(mapper.encode(pa.RecordBatch.from_pylist(rows, schema=schema)))
    join = getattr(mapper, "join", None)
    if join is not None:
        by_time: dict[int, list[bytes]] = {}
        for one, data in zip(events, payloads, strict=True):
            if not isinstance(data, Refusal):
                by_time.setdefault(one.time_ms, []).append(data)
        payloads = list(map(join, by_time.values()))
    return [getattr(mapper, "header", b"") + one for one in payloads]


def _compared(what: str, actual: Sequence[str], expected: Sequence[str]) -> list[str]:
    lines = []
    for number, (ours, theirs) in enumerate(zip_longest(actual, expected), 1):
        if ours != theirs:
            said = what if what.startswith("error") else f"{what} {number}"
            lines.append(f"{said}: {ours or 'nothing'}\n  expected: {theirs or 'nothing'}")
    return lines


def _as(expected: object, data: bytes | None) -> str:
    """A payload as the expected one is shown."""
    if data is None:
        return ""
    if isinstance(expected, dict | list):
        try:
            return _json(orjson.loads(data))
        except ValueError:
            pass
    return repr(data) if isinstance(expected, bytes) else data.decode(errors="backslashreplace")


def _shown(expected: object) -> str:
    if isinstance(expected, dict | list):
        return _json(expected)
    return repr(expected) if isinstance(expected, bytes) else str(expected)


def _text(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: object) -> str:
    # JSON of Python has NaN and infinities; that of orjson makes them null.
    return json.dumps(value, sort_keys=True, default=str, ensure_ascii=False, separators=(",", ":"))


def _plain(one: TimedEvent) -> TimedEvent:
    """An emitted event with NaN and infinities as floats, which an answer has with their types."""
    event = {
        name: float(value["v"]) if isinstance(value, dict) and "$t" in value else value
        for name, value in (one.event or {}).items()
    }
    return replace(one, event=event)


def _start(value: object) -> int:
    """The time at which a case begins, which YAML has read; without a zone it is UTC."""
    if value is None:
        return START_MS
    if not isinstance(value, datetime):
        raise _wrong(f"start: {value} is no time such as 2026-01-01T00:00:00Z")
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _duration(value: Any) -> int:
    try:
        return int(value_of(Kind.DURATION, str(value)))
    except ValueError as error:
        raise _wrong(f"at: {value} {error}") from error


def _wrong(what: str) -> MeshError:
    return MeshError(
        "MESH-U160",
        "the test is not of the form that 'mesh test' reads",
        detail=f"{what}.",
        hint="docs/cli.md has an example.",
    )
