"""Answers: the output of an app as JSON values, and the comparison of two answers.

A recorded answer has the compact form, with only the parts that are compared:

    {"status": "ok", "streams": {name: [[step, ts, values, types], ..]},
     "queries": {name: [[ts, events or null, events or null], ..]}, "errors": [[type, where], ..],
     "ondemand": [[step, [[values, types], ..] or "error"], ..]}
    {"status": "creation_error"}

with events [ts, values, types] and, where they left a window, a fourth member 1.

A callback without events has no information and is not compared: the engine calls without events if
a batch, a limit or a snapshot emits none.  A callback's own time is not compared either: its events
have theirs.  The engine gives it the time of the last of them, or of a reset that is not visible.
"""

from __future__ import annotations

import json
import math
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mesh.errors import MeshError
from mesh.functions import objects
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mesh.model.types import Attribute
    from mesh.model.values import JsonMapping, JsonObject

_LETTERS: Final[dict[AttributeType, str]] = {
    AttributeType.STRING: "s",
    AttributeType.INT: "i",
    AttributeType.LONG: "l",
    AttributeType.FLOAT: "f",
    AttributeType.DOUBLE: "d",
    AttributeType.BOOL: "b",
}
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CLASSES: Final = {
    "java.lang.String": "s",
    "java.lang.Integer": "i",
    "java.lang.Long": "l",
    "java.lang.Float": "f",
    "java.lang.Double": "d",
    "java.lang.Boolean": "b",
}
#: The engine's class of exception for an app that is refused, by our code.
_REFUSALS: Final[dict[str, str]] = {
    "MESH-L1": "SiddhiParserException",
    "MESH-L202": "AttributeNotExistException",
    "MESH-L2": "SiddhiAppCreationException",
    "MESH-P": "SiddhiAppCreationException",
}


def event(
    time_ms: int, values: Sequence[Any], attributes: Sequence[Attribute], *, expired: bool = False
) -> JsonObject:
    """An event as an answer has it.

    ``values`` are Python's, as Arrow gives them.
    """
    letters = [
        _letter(value, attribute.type) for value, attribute in zip(values, attributes, strict=True)
    ]
    data = [_json(value, letter) for value, letter in zip(values, letters, strict=True)]
    return {"ts": time_ms, "data": data, "t": "".join(letters), "isExpired": expired}


def _letter(value: object, kind: AttributeType) -> str:
    """The kind of a value; one of type ``object`` may be a plain one."""
    if value is None:
        return "n"
    if kind is not AttributeType.OBJECT:
        return _LETTERS[kind]
    return _CLASSES.get(objects.java_class(value), "o")


def _json(value: Any, letter: str) -> Any:
    if letter in "fd":
        return _floating(value, letter)
    return int(value) if letter in "il" else _object(value) if letter == "o" else value


def _floating(value: float, letter: str) -> object:
    if not math.isfinite(value):
        text = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return {"$t": "float" if letter == "f" else "double", "v": text}
    # A float's own shortest text, not that of the double it is here.
    return float(str(np.float32(value))) if letter == "f" else float(value)


def _object(value: object) -> object:
    header: JsonObject = {"$t": "object", "class": objects.java_class(value)}
    match value:
        case objects.ValueSet():
            return header | {"v": sorted(objects.object_text(one) for one in value)}
        case list():
            return header | {"v": [_member(one) for one in value]}
        case dict():
            texts = {objects.object_text(key): _member(one) for key, one in value.items()}
            return header | {"v": dict(sorted(texts.items()))}
        case _:
            return header | {"v": objects.object_text(value)}


def _member(value: object) -> object:
    return _json(value, _letter(value, AttributeType.OBJECT))


def refusal(error: MeshError) -> JsonObject:
    """A refused app as an answer has it, with the class of exception nearest to the engine's."""
    kind = next(name for code, name in _REFUSALS.items() if error.code.startswith(code))
    described: JsonObject = {"type": kind, "message": str(error), "code": error.code}
    if error.position is not None:
        at = error.position
        described["start"] = [at.line, at.column]
        described["end"] = [at.line, at.column + at.length]
    return described


def reason(error: Exception) -> str:
    """The reason of an answer without a result."""
    kind = error.code if isinstance(error, MeshError) else type(error).__name__
    return f"{kind}: {error}"


# Compact


def compact(answer: JsonMapping) -> JsonObject:
    """The parts of an answer that are compared; floats as their text in Java reads here."""
    status = answer["status"]
    if status == "creation_error":
        # The wording and the classes of errors are specific to each engine.
        return {"status": status}
    if status != "ok":
        return {"status": status, "error": answer.get("error")}
    parts: JsonObject = {
        "status": status,
        "streams": {
            name: [[e["step"], *_compact_event(e)] for e in events]
            for name, events in answer.get("streams", {}).items()
        },
        "queries": {
            name: [[c["ts"], _compact_events(c["in"]), _compact_events(c["remove"])] for c in calls]
            for name, calls in answer.get("queries", {}).items()
        },
    }
    if answer.get("ondemand"):
        parts["ondemand"] = [[one["step"], _compact_rows(one)] for one in answer["ondemand"]]
    if answer.get("errors"):
        parts["errors"] = [[error["type"], error["where"]] for error in answer["errors"]]
    return parts


def _compact_event(one: JsonMapping) -> list[object]:
    data = [
        float(np.float32(value)) if letter == "f" and isinstance(value, float) else _masked(value)
        for value, letter in zip(one["data"], one["t"], strict=True)
    ]
    short = [
        float(str(np.float32(value))) if letter == "f" and isinstance(value, float) else value
        for value, letter in zip(data, one["t"], strict=True)
    ]
    return [one["ts"], short, one["t"], *([1] if one["isExpired"] else [])]


def _compact_rows(query: JsonMapping) -> list[object] | str:
    """The rows of an on-demand query; the engine returns null for none."""
    if "error" in query:
        return "error"
    return [_compact_event(one)[1:] for one in query.get("result") or ()]


def _compact_events(events: Iterable[JsonMapping] | None) -> list[object] | None:
    return None if events is None else [_compact_event(one) for one in events]


def _masked(value: object) -> object:
    """Random UUIDs are alike."""
    return _UUID.sub("<uuid>", value) if isinstance(value, str) else value


# Comparing


class Likeness(StrEnum):
    """The degree of agreement of two answers."""

    SAME = "same"
    CHUNKS = "same events, other chunks"
    ORDER = "same events, other order"
    DIFFERENT = "different"
    UNSUPPORTED = "not supported"


def likeness(ours: JsonMapping, theirs: JsonMapping) -> Likeness:
    """The likeness of two compact answers; the first is ours."""
    ours, theirs = telling(ours), telling(theirs)
    if ours["status"] == "error" and str(ours.get("error")).startswith("MESH-P900"):
        return Likeness.UNSUPPORTED
    if _text(ours) == _text(theirs):
        return Likeness.SAME
    if ours["status"] != "ok" or theirs["status"] != "ok":
        return Likeness.DIFFERENT
    if _text(_flat(ours)) == _text(_flat(theirs)):
        return Likeness.CHUNKS
    if _text(_bag(_flat(ours))) == _text(_bag(_flat(theirs))):
        return Likeness.ORDER
    return Likeness.DIFFERENT


def telling(answer: JsonMapping) -> JsonObject:
    """A compact answer without the callbacks that have no events, and without their own times."""
    queries = {
        name: [[None, *call[1:]] for call in calls if call[1] or call[2]]
        for name, calls in answer.get("queries", {}).items()
    }
    return {**answer, "queries": queries} if queries else dict(answer)


def _text(value: object) -> str:
    # 1 and 1.0 differ as text, and so do 0.0 and -0.0.  The class of Java's list that the engine
    # creates for the events of a count is irrelevant.
    text = json.dumps(value, sort_keys=True)
    return text.replace('"java.util.LinkedList"', '"java.util.ArrayList"')


def _flat(answer: JsonMapping) -> JsonObject:
    queries = {
        name: [[e for call in calls for e in call[side] or ()] for side in (1, 2)]
        for name, calls in answer["queries"].items()
    }
    return {**answer, "queries": queries}


def _bag(answer: JsonMapping) -> JsonObject:
    streams = {name: sorted(map(_text, events)) for name, events in answer["streams"].items()}
    queries = {
        name: [sorted(map(_text, side)) for side in sides]
        for name, sides in answer["queries"].items()
    }
    return {**answer, "streams": streams, "queries": queries}


def differences(ours: JsonMapping, theirs: JsonMapping) -> list[str]:
    """Differences of two compact answers, at most ten sentences; none if they are the same."""
    ours, theirs = telling(ours), telling(theirs)
    if _text(ours) == _text(theirs):
        return []
    if ours["status"] != theirs["status"] or ours["status"] != "ok":
        return [f"{_short(ours)}, expected {_short(theirs)}"]
    sentences = []
    for part in ("streams", "queries"):
        for name in sorted({*ours[part], *theirs[part]}):
            a, b = ours[part].get(name, []), theirs[part].get(name, [])
            for number in range(max(len(a), len(b))):
                left = _text(a[number]) if number < len(a) else "nothing"
                right = _text(b[number]) if number < len(b) else "nothing"
                if left != right:
                    sentences.append(f"{name} {number}: {left}, expected {right}")
    queries = theirs.get("ondemand", [])
    for answered, expected in zip(ours.get("ondemand", []), queries, strict=True):
        if _text(answered) != _text(expected):
            sentences.append(
                f"step {expected[0]}: {_text(answered[1])}, expected {_text(expected[1])}"
            )
    if ours.get("errors") != theirs.get("errors"):
        sentences.append(f"errors {ours.get('errors')}, expected {theirs.get('errors')}")
    return sentences[:10]


def _short(answer: JsonMapping) -> str:
    said = answer.get("error") or ""
    return f"{answer['status']} {said}".rstrip()
