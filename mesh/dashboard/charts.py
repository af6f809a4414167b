"""Series of the last minutes as lines for a page: drawn without JavaScript, and as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from mesh.dashboard import shown
from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mesh.dashboard.board import Board
    from mesh.manager.telemetry import Past

#: Times that a page offers, seconds, with the length of a step.
SPANS: Final = {"15": (900, 10), "60": (3600, 30)}
WIDTH: Final = 300.0
HEIGHT: Final = 48.0
#: Rows of the table of a chart.
ROWS: Final = 12


@dataclass(frozen=True, slots=True)
class Chart:
    """One series."""

    name: str
    #: Of its axis: ``%`` for a ratio, ``B``, ``s``; empty for a number.
    unit: str
    #: The greatest value and the last one, as text.
    most: str
    last: str
    #: For an SVG of ``WIDTH`` by ``HEIGHT``; empty without values.
    line: str
    #: Times and values in short: ``[[seconds], [values]]``, JSON.
    data: str
    #: The last values: time and value.
    rows: Sequence[tuple[str, str]]


#: Of each value: its name, its unit and its text.
_OF_APP: Final[dict[str, tuple[str, str, Callable[[float | None], str]]]] = {
    "events_in": ("Events in /s", "", shown.rate),
    "events_out": ("Events out /s", "", shown.rate),
    "backlog": ("Waiting messages", "", shown.number),
    "backlog_s": ("Lag", "s", shown.duration),
}
_OF_NODE: Final[dict[str, tuple[str, str, Callable[[float | None], str]]]] = {
    "cpu": ("Machine's CPU", "%", shown.percent),
    "process_cpu": ("Own CPU", "%", shown.percent),
    "memory_bytes": ("Own memory", "B", shown.size),
    "load_1m": ("Load", "", shown.rate),
}


async def charts_of(board: Board, kind: str, name: str, span: str) -> list[Chart]:
    """The charts of an app, ``A``, or of a node, ``worker/w``; none without a history."""
    seconds, step_s = SPANS.get(span, SPANS["15"])
    try:
        past: Past = await board.kept(
            ("history", kind, name, seconds),
            step_s / 2,
            lambda: board.service.telemetry.past(kind, name, seconds, step_s),
        )
    except MeshError:
        return []
    fields = _OF_APP if kind == "app" else _OF_NODE
    return [
        chart(title, unit, past.start_ms, past.step_s, past.values[field], tell)
        for field, (title, unit, tell) in fields.items()
    ]


def chart(
    name: str,
    unit: str,
    start_ms: int,
    step_s: int,
    values: Sequence[float | None],
    tell: Callable[[float | None], str],
) -> Chart:
    """The chart of one series; None is a gap in its line."""
    known = [value for value in values if value is not None]
    most = max(known, default=0.0)
    times = [start_ms // 1000 + index * step_s for index in range(len(values))]
    last = [(at, v) for at, v in zip(times, values, strict=True) if v is not None][-ROWS:]
    return Chart(
        name,
        unit,
        tell(most) if known else shown.NOTHING,
        tell(known[-1]) if known else shown.NOTHING,
        line_of(values, most),
        orjson.dumps([times, [None if v is None else round(v, 3) for v in values]]).decode(),
        [(shown.clock(at * 1000), tell(value)) for at, value in reversed(last)],
    )


def line_of(values: Sequence[float | None], most: float) -> str:
    """The path of a line from left to right, interrupted where nothing is known."""
    if len(values) < 2:
        return ""
    parts = []
    draws = False
    for index, value in enumerate(values):
        if value is None:
            draws = False
            continue
        x = index * WIDTH / (len(values) - 1)
        y = HEIGHT - 2 - (HEIGHT - 4) * (value / most if most else 0.0)
        parts.append(f"{'L' if draws else 'M'}{x:.1f} {y:.1f}")
        draws = True
    return "".join(parts)
