"""Series over time as lines for a page: drawn without JavaScript, and as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from mesh.dashboard import shown
from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.datastructures import QueryParams

    from mesh.dashboard.board import Board
    from mesh.manager.telemetry import Past

#: Times that a page offers, by their number of minutes: name, and length of a step in seconds.
SPANS: Final = {
    "5": ("5 min", 5),
    "15": ("15 min", 10),
    "60": ("1 h", 30),
    "360": ("6 h", 120),
    "1440": ("24 h", 300),
    "10080": ("7 d", 1800),
}
DEFAULT: Final = "15"
#: Steps of a time that is chosen in a chart, about; and the shortest such time, seconds.
STEPS: Final = 150
SHORTEST_S: Final = 60
LONGEST_S: Final = 7 * 86_400
WIDTH: Final = 300.0
HEIGHT: Final = 48.0
#: Rows of the table of a chart.
ROWS: Final = 12
#: Apps that are added up for a user who may see some of all.
APPS_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class ChartTime:
    """The time that the charts of a page show."""

    #: Minutes, one of ``SPANS``; empty for a time that was chosen in a chart.
    span: str
    seconds: int
    step_s: int
    #: Its end, seconds since 1970; None for now.
    until_s: int | None = None
    #: In words; empty for a time that was chosen in a chart.
    title: str = ""
    #: Name and query of other times: earlier, later, shorter, longer.
    links: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """One value over time: one line, or several of one unit."""

    name: str
    #: Of its axis: ``%`` for a ratio, ``B``, ``s``; empty for a number.
    unit: str
    #: The greatest value and the last ones, as text.
    most: str
    last: str
    #: Names of the lines; one that is empty has the chart's name.
    labels: Sequence[str]
    #: For an SVG of ``WIDTH`` by ``HEIGHT``; empty without values.
    lines: Sequence[str]
    #: Times and values in short: ``[[seconds], [values], ..]``, JSON.
    data: str
    #: The last values: time, and a value of each line.
    rows: Sequence[tuple[int, Sequence[str]]]


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    unit: str
    tell: Callable[[float | None], str]
    #: By field: the name of its line.
    fields: dict[str, str]


_OF_FLOW: Final = (
    _Kind("Events in /s", "", shown.rate, {"events_in": ""}),
    _Kind("Events out /s", "", shown.rate, {"events_out": ""}),
    _Kind("Failed events /s", "", shown.rate, {"errors": ""}),
    _Kind("Latency", "s", shown.duration, {"latency_p50_s": "half", "latency_p99_s": "99 of 100"}),
    _Kind("Waiting messages", "", shown.number, {"backlog": ""}),
    _Kind("Lag", "s", shown.duration, {"backlog_s": ""}),
)
_OF_NODE: Final = (
    _Kind("Machine's CPU", "%", shown.percent, {"cpu": ""}),
    _Kind("Own CPU", "%", shown.percent, {"process_cpu": ""}),
    _Kind("Own memory", "B", shown.size, {"memory_bytes": ""}),
    _Kind("Load", "", shown.rate, {"load_1m": ""}),
)


def chart_time(query: QueryParams, now_s: int) -> ChartTime:
    """The time that the address of a page names: ``span``, or ``from`` and ``to`` in seconds."""
    begin, end = _time(query.get("from", "")), _time(query.get("to", ""))
    if begin is None or end is None or begin >= end:
        span = query.get("span", DEFAULT)
        span = span if span in SPANS else DEFAULT
        name, step_s = SPANS[span]
        seconds = int(span) * 60
        return ChartTime(
            span, seconds, step_s, None, f"Last {name}", _links(now_s - seconds, now_s, now_s)
        )
    end = max(min(end, now_s), now_s - LONGEST_S + SHORTEST_S)
    begin = max(min(begin, end - SHORTEST_S), now_s - LONGEST_S)
    seconds = end - begin
    step_s = max(1, -(-seconds // STEPS))
    return ChartTime("", seconds, step_s, end, "", _links(begin, end, now_s))


def _links(begin: int, end: int, now_s: int) -> list[tuple[str, str]]:
    """Other times than this one, each as a query."""
    half = (end - begin) // 2
    links = [("Earlier", begin - half, end - half)]
    if end < now_s:
        links.append(("Later", begin + half, end + half))
    if half >= SHORTEST_S:
        links.append(("Zoom in", begin + half // 2, end - half // 2))
    links.append(("Zoom out", begin - half, end + half))
    return [
        (name, f"from={max(since, now_s - LONGEST_S)}&to={min(until, now_s)}")
        for name, since, until in links
        if until > now_s - LONGEST_S + SHORTEST_S
    ]


def _time(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


async def charts_of(board: Board, kind: str, name: str, window: ChartTime) -> list[Chart]:
    """The charts of an app ``A``, a group ``A/g``, an instance or a node ``worker/w``.

    None without a history.
    """
    of = kind, name, window.seconds, window.step_s, window.until_s
    try:
        past: Past = await board.cached(
            ("history", *of),
            max(1.0, window.step_s / 2),
            lambda: board.service.telemetry.past(*of),
        )
    except MeshError:
        return []
    return _charts(past, _OF_NODE if kind == "node" else _OF_FLOW)


async def charts_of_apps(board: Board, apps: Sequence[str], window: ChartTime) -> list[Chart]:
    """The charts of several apps together; none without a history."""
    of = window.seconds, window.step_s, window.until_s
    past: Past | None = await board.cached(
        ("history", *apps, *of),
        max(1.0, window.step_s / 2),
        lambda: board.service.telemetry.past_of_apps(apps, *of),
    )
    return _charts(past, _OF_FLOW) if past is not None else []


def _charts(past: Past, kinds: Sequence[_Kind]) -> list[Chart]:
    return [
        chart(
            kind.name,
            kind.unit,
            past.start_ms,
            past.step_s,
            {label: past.values[field] for field, label in kind.fields.items()},
            kind.tell,
        )
        for kind in kinds
    ]


def chart(
    name: str,
    unit: str,
    start_ms: int,
    step_s: int,
    lines: Mapping[str, Sequence[float | None]],
    tell: Callable[[float | None], str],
) -> Chart:
    """The chart of some lines by their names; None is a gap in one."""
    series = [[value for value in values if value is not None] for values in lines.values()]
    most = max((max(values) for values in series if values), default=0.0)
    count = len(next(iter(lines.values())))
    times = [start_ms // 1000 + index * step_s for index in range(count)]
    steps = list(zip(times, zip(*lines.values(), strict=True), strict=True))
    last = [(at, row) for at, row in steps if any(v is not None for v in row)][-ROWS:]
    short = [[None if v is None else round(v, 4) for v in values] for values in lines.values()]
    return Chart(
        name,
        unit,
        tell(most) if any(series) else shown.NOTHING,
        ", ".join(tell(values[-1]) if values else shown.NOTHING for values in series),
        tuple(lines),
        [line_of(values, most) for values in lines.values()],
        orjson.dumps([times, *short]).decode(),
        [(at * 1000, [tell(value) for value in row]) for at, row in reversed(last)],
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
