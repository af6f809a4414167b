"""Tests of ``mesh test`` from events that were played: YAML with a case for them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import yaml

from mesh.errors import MeshError
from mesh.testing import app_tests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.model.values import JsonMapping, JsonObject
    from mesh.testing.app_tests import TimedEvent


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
    for one in app_tests.play(text, events):
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
