"""Content of a case: steps, times and values, as for the program that runs the engine."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from mesh.functions import objects
from mesh.model.types import AttributeType
from mesh.model.values import JsonMapping, JsonObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from mesh.model.types import Attribute, StreamSchema

#: Monday 2019-10-07T10:00:00Z.
START_MS: Final = 1_570_442_400_000
_PLAYBACK: Final = re.compile(r"@app\s*:\s*playback", re.IGNORECASE)
_INT_MAX: Final = {AttributeType.INT: 2**31 - 1, AttributeType.LONG: 2**63 - 1}


class TimeMode(StrEnum):
    """The source of time."""

    VIRTUAL = "virtual"
    PLAYBACK = "playback"


class CaseError(Exception):
    """A step that can't be done, or a value that is invalid for its attribute."""


@dataclass(frozen=True, slots=True)
class ConformanceCase:
    """One case; ``inputs`` are its steps as JSON values."""

    name: str
    app: str
    inputs: tuple[JsonMapping, ...]
    outputs: tuple[str, ...] | None
    queries: tuple[str, ...] | None
    mode: TimeMode
    start_ms: int

    @property
    def is_annotated(self) -> bool:
        """Whether the app itself has the annotation of playback."""
        return _PLAYBACK.search(self.app) is not None

    @property
    def fed(self) -> tuple[str, ...]:
        """The streams that the steps send to, each once."""
        return tuple(dict.fromkeys(s["stream"] for s in self.inputs if "stream" in s))

    def names_in_text(self, name: str) -> bool:
        """Whether the text gives a query this name, rather than the app its number."""
        return f"'{name}'" in self.app or f'"{name}"' in self.app


def read(path: Path) -> list[JsonObject]:
    """The lines of a file of cases or answers."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def case(line: JsonMapping) -> ConformanceCase:
    """Read the case of a line of a file.

    Raises:
        CaseError: the mode is not one that runs here.
    """
    inputs = tuple(line.get("inputs") or ())
    first_ms = next((ts for ts in map(_first_time, inputs) if ts is not None), None)
    mode = line.get("mode") or "auto"
    if mode == "auto":
        has_times = first_ms is not None or _PLAYBACK.search(line["app"])
        mode = TimeMode.PLAYBACK if has_times else TimeMode.VIRTUAL
    if mode not in tuple(TimeMode):
        raise CaseError(f"mode {mode}")
    if mode == TimeMode.PLAYBACK and line.get("playback") is False:
        mode = TimeMode.VIRTUAL
    start_ms = line.get("start_ts")
    if start_ms is None:
        start_ms = first_ms if mode == TimeMode.PLAYBACK and first_ms is not None else START_MS
    outputs, queries = line.get("outputs"), line.get("queries")
    return ConformanceCase(
        name=line.get("name") or "",
        app=line["app"],
        inputs=inputs,
        outputs=None if outputs is None else tuple(outputs),
        queries=None if queries is None else tuple(queries),
        mode=TimeMode(mode),
        start_ms=start_ms,
    )


def _first_time(step: JsonMapping) -> int | None:
    time = step.get("ts")
    if step.get("events"):
        time = _event(step["events"][0])[0]
    return time if isinstance(time, int) and not isinstance(time, bool) else None


def _event(event: Any) -> tuple[Any, Any]:
    return (event["ts"], event["data"]) if isinstance(event, dict) else (event[0], event[1])


@dataclass(frozen=True, slots=True)
class CaseClock:
    """The origin of a case's relative times."""

    start_ms: int
    now_ms: int

    def time(self, time: Any) -> int | None:
        """A time of a step in milliseconds since 1970; None when it has none."""
        match time:
            case None:
                return None
            case {"$now": after}:
                return self.now_ms + int(after)
            case {"$t0": after}:
                return self.start_ms + int(after)
            case _:
                return int(time)


def sent(step: JsonMapping, clock: CaseClock) -> list[tuple[int | None, list[Any]]]:
    """(time, values) of the events that a step sends; times None if it has none."""
    events = map(_event, step["events"]) if "events" in step else [(step.get("ts"), step["data"])]
    return [(clock.time(time), list(data)) for time, data in events]


def batch(
    schema: StreamSchema, rows: Sequence[Sequence[object]], clock: CaseClock
) -> pa.RecordBatch:
    """Rows of JSON values as a record batch of a stream's schema.

    Raises:
        CaseError: a row has another width, or a value does not fit its attribute.
    """
    width = len(schema.attributes)
    for row in rows:
        if len(row) != width:
            raise CaseError(f"{len(row)} values for the {width} attributes of {schema.name}")
    columns: list[list[Any]] = [[] for _ in schema.attributes]
    for row in rows:
        for column, value_, attribute in zip(columns, row, schema.attributes, strict=True):
            column.append(_value(value_, attribute, clock))
    arrays = [
        objects.to_binary(column)
        if attribute.type is AttributeType.OBJECT
        else pa.array(column, attribute.type.arrow)
        for column, attribute in zip(columns, schema.attributes, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def _value(value: Any, attribute: Attribute, clock: CaseClock) -> object:
    kind = attribute.type
    if kind is AttributeType.OBJECT:
        return _boxed(value)
    if value is None:
        return None
    if isinstance(value, dict):
        value = _written_out(value, attribute, clock)
    if value is None:
        return None
    if not _fits(value, kind):
        raise CaseError(f"{value!r} for {attribute.name}, which is {kind}")
    if kind in (AttributeType.FLOAT, AttributeType.DOUBLE):
        return float(value)
    return int(value) if kind in _INT_MAX else value


def _written_out(value: JsonObject, attribute: Attribute, clock: CaseClock) -> object:
    """The value that a JSON object denotes: a time, or a value with its type."""
    kind = attribute.type
    match value:
        case {"$t": "null"}:
            return None
        case {"$t": str(type_name), "v": inner}:
            if type_name != kind.value:
                raise CaseError(
                    f"a value of type {type_name} for {attribute.name}, which is {kind}"
                )
            return float(inner) if isinstance(inner, str) and kind.is_numeric else inner
        case {"$t0": _} | {"$now": _}:
            time_ms = clock.time(value)
            return str(time_ms) if kind is AttributeType.STRING else time_ms
        case _:
            return value


def _boxed(value: object) -> object:
    """A value of type object; one that is written out has the class that its type has in Java."""
    match value:
        case {"$t": "null"}:
            return None
        case {"$t": "int", "v": inner}:
            return objects.INTEGER(inner)
        case {"$t": "long", "v": inner}:
            return int(inner)
        case {"$t": "float", "v": inner}:
            return objects.FLOAT(float(inner))
        case {"$t": "double", "v": inner}:
            return float(inner)
        case {"$t": str(), "v": inner}:
            return objects.from_python(inner)
        case _:
            return objects.from_python(value)


def _fits(value: object, kind: AttributeType) -> bool:
    match kind:
        case AttributeType.STRING:
            return isinstance(value, str)
        case AttributeType.BOOL:
            return isinstance(value, bool)
        case AttributeType.INT | AttributeType.LONG:
            if isinstance(value, bool) or not isinstance(value, int | float):
                return False
            whole = isinstance(value, int) or (math.isfinite(value) and value.is_integer())
            return whole and -_INT_MAX[kind] - 1 <= value <= _INT_MAX[kind]
        case AttributeType.FLOAT | AttributeType.DOUBLE:
            return not isinstance(value, bool) and isinstance(value, int | float)
        case _:
            return True


def lines(values: Iterable[JsonMapping]) -> str:
    """JSON values as the lines of a file."""
    return "".join(
        json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n" for value in values
    )
