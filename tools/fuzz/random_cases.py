"""Random cases: a small app of one category, and events and time for it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

from tools.fuzz.in_stores import OPTIONS, STORE
from tools.fuzz.random_parts import ATTRIBUTES, SLIDING, TIMES, Parts
from tools.fuzz.random_state import STATE_MAKERS, aggregation_case

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_STREAMS: Final = ("S", "T")
_DEFINED: Final = "".join(f"define stream {name} ({ATTRIBUTES}); " for name in _STREAMS)


def _query(number: int, text: str) -> str:
    return f"@info(name='q{number}') {text}; "


def _filters(p: Parts) -> str:
    text = _query(1, f"from S{p.filter(0.9)} {p.plain()} insert into Out")
    if p.chance(0.5):
        text = _query(0, f"from S{p.filter(0.5)} select * insert into Mid")
        text += _query(1, f"from Mid{p.filter(0.8)} {p.plain()} insert into Out")
    return text


def _aggregates(p: Parts) -> str:
    return _query(1, f"from S{p.filter()} {p.aggregates()} insert {p.events()}into Out")


def _windows(p: Parts) -> str:
    text = f"from S{p.filter(0.2)}#window.{p.window()}{p.filter(0.1)} {p.selection()} "
    return _query(1, f"{text}insert {p.events()}into Out")


def _chains(p: Parts) -> str:
    rate = p.rate(0.1)
    first = f"from S#window.{p.window()} select k, a, b, f, d, o, ts "
    first += f"{rate}insert {p.events(rate)}into Mid"
    rate = p.rate(0.1)
    second = f"from Mid#window.{p.window()} {p.selection()} {rate}insert {p.events(rate)}into Out"
    third = f"from S{p.filter()} {p.plain()} insert into Out2"
    parts = [_query(1, first), _query(2, second)]
    parts.insert(p.random.randrange(3), _query(3, third))
    return "".join(parts)


def _rates(p: Parts) -> str:
    source = "S" + (f"#window.{p.window()}" if p.chance(0.6) else "")
    rate = p.rate()
    return _query(1, f"from {source} {p.selection()} {rate}insert {p.events(rate)}into Out")


def _joins(p: Parts) -> str:
    left = f"S{p.filter(0.2)}#window.{p.window(SLIDING if p.chance(0.7) else ())} as x"
    right = f"T{p.filter(0.2)}#window.{p.window(SLIDING if p.chance(0.7) else ())} as y"
    kind = p.one("join", "join", "left outer join", "right outer join", "full outer join")
    one_way = p.random.randrange(6)
    left += " unidirectional" if one_way == 0 else ""
    right += " unidirectional" if one_way == 1 else ""
    both = p.of("x.", "y.")
    on = p.one("x.k == y.k", "x.a == y.a", "x.k == y.k and x.a < y.a", both.condition(1))
    on = f" on {on}" if p.chance(0.9) else ""
    rate = p.rate(0.1)
    text = f"from {left} {kind} {right}{on} {both.selection()} {rate}"
    return _query(1, f"{text}insert {p.events(rate)}into Out")


def _step(p: Parts, number: int, stream: str = "", *, counted: bool = False) -> str:
    stream = stream or p.one(*_STREAMS)
    condition = p.filter(0.3)
    if 1 < number < 5 and p.chance(0.5):
        earlier = f"e{p.random.randint(1, number - 1)}"
        comparison = f"[{p.one('a', 'b')} {p.one('==', '>=', '!=')} {earlier}.a]"
        condition = f"[k == {earlier}.k]" if p.chance(0.3) else comparison
    text = f"e{number}={stream}{condition}"
    if counted:
        text += p.one("<1:2>", "<2>", "<2:>", "<:2>", "<0:2>")
    return text


def _absent(p: Parts) -> str:
    return f"not {p.one(*_STREAMS)}{p.filter(0.6)} for {p.one(*TIMES)}"


def _patterns(p: Parts) -> str:
    count = p.random.randint(2, 3)
    elements = []
    for number in range(1, count + 1):
        element = _step(p, number, counted=p.chance(0.15))
        if p.chance(0.15):
            element = _absent(p) if p.chance(0.5) else element
        elif p.chance(0.15):
            pair = f"{_step(p, number, 'S')} {p.one('and', 'or')} {_step(p, number + 5, 'T')}"
            element = f"({pair})" if p.chance(0.3) else pair
        if p.chance(0.5 if number == 1 else 0.1):
            element = f"every ({element})" if p.chance(0.7) else f"every {element}"
        elements.append(element)
    return _state_query(p, " -> ".join(elements))


def _sequences(p: Parts) -> str:
    elements = []
    for number in range(1, p.random.randint(2, 3) + 1):
        element = _step(p, number)
        element += p.one("", "", "", "*", "+", "?")
        elements.append(element)
    chain = ", ".join(elements)
    return _state_query(p, f"every {chain}" if p.chance(0.7) else chain)


def _absences(p: Parts) -> str:
    elements = [_step(p, 1), _absent(p)]
    if p.chance(0.3):
        elements.reverse()
    if p.chance(0.5):
        elements.append(_step(p, 2))
    if p.chance(0.1):
        elements[1] = f"{_step(p, 3, 'S')} and {_absent(p)}"
    if p.chance(0.5):
        elements[0] = f"every {elements[0]}"
    return _state_query(p, " -> ".join(elements))


def _state_query(p: Parts, chain: str) -> str:
    names = [f"e{n}" for n in range(1, 9) if f"e{n}=" in chain]
    within = f" within {p.one(*TIMES)}" if p.chance(0.4) else ""
    columns = [f"{name}.{a} as {name}{a}" for name in names for a in ("k", "a") if p.chance(0.8)]
    select = ", ".join(columns) or "count() as n"
    return _query(1, f"from {chain}{within} select {select} insert into Out")


def _partitions(p: Parts) -> str:
    key = p.one("k", "a", "k", "o")
    ranges = "a < 1 as 'low' or a >= 1 as 'high'"
    keys = [f"{ranges if p.chance(0.2) else key} of {name}" for name in _STREAMS]
    match p.random.randrange(5):
        case 0:
            body = _query(1, f"from S {p.aggregates()} insert {p.events()}into Out")
        case 1:
            source = f"S#window.{p.window()}"
            body = _query(1, f"from {source} {p.selection()} insert {p.events()}into Out")
        case 2:
            # Each key's timers begin with its first event, whichever query reads it.
            source = p.one("S", f"S{p.filter(0.5)}", f"S#window.{p.window()}")
            rate = p.rate()
            body = _query(1, f"from {source} {p.selection()} {rate}insert {p.events(rate)}into Out")
            body += _query(2, f"from T {p.plain()} insert into Out2")
        case 3:
            body = _query(1, f"from S#window.{p.window()} select * insert {p.events()}into #I")
            rate = p.rate(0.3)
            body += _query(2, f"from #I {p.selection()} {rate}insert into Out")
        case _:
            body = p.one(*(make(p) for make in (_patterns, _sequences, _joins)))
    return f"partition with ({', '.join(keys)}) begin {body}end; "


def _tables(p: Parts) -> str:
    key = p.one("", "@PrimaryKey('k') ", "@Index('a') ", "@PrimaryKey('k') @Index('a') ")
    text = f"{key}define table D (k string, a int, d double); "
    text += _query(1, f"from S{p.filter(0.2)} select k, a, d insert into D")
    on = p.one("D.k == k", "D.a == a", "D.k == k and D.a > a", "D.a < 2", "D.d > d")
    change = p.random.randrange(4)
    if change == 0:
        text += _query(2, f"from T delete D on {on}")
    elif change == 1:
        what = p.one("D.a = a", "D.d = d + 1.0", "D.a = a, D.d = d")
        text += _query(2, f"from T select k, a, d update D set {what} on {on}")
    elif change == 2:
        text += _query(2, f"from T select k, a, d update or insert into D on {on}")
    if p.chance(0.5):
        inside = p.one("D.k == k in D", "D.a == a in D", "(D.k == k and D.a < a) in D")
        text += _query(3, f"from T[{inside}] select k, a insert into Out")
    else:
        kind = p.one("join", "left outer join")
        on = p.one("x.k == D.k", "x.a == D.a", "x.k == D.k and D.a >= x.a")
        join = f"from T as x {kind} D on {on} select x.k as k, x.a as a, D.a as n0, D.d as n1"
        text += _query(3, f"{join} insert into Out")
    return text


def _named_windows(p: Parts) -> str:
    events = p.one("", " output all events", " output expired events", " output current events")
    text = f"define window W ({ATTRIBUTES}) {p.window()}{events}; "
    text += _query(1, f"from S{p.filter(0.2)} select * insert {p.events()}into W")
    if p.chance(0.3):
        text += _query(2, "from T select * insert into W")
    text += _query(3, f"from W{p.filter(0.2)} {p.selection()} insert {p.events()}into Out")
    if p.chance(0.3):
        join = f"from T as x join W as y on x.k == y.k {p.of('x.', 'y.').plain()}"
        text += _query(4, f"{join} insert into Out2")
    return text


def _triggers(p: Parts) -> str:
    at = p.one("at every 100 milliseconds", "at every 1 sec", "at 'start'", "at '*/1 * * * * ?'")
    text = f"define trigger Tick {at}; "
    text += _query(
        1,
        f"from Tick#window.{p.window(('length', 'lengthBatch', 'time'))} "
        f"select triggered_time, count() as n insert {p.events()}into Out",
    )
    join = f"from Tick as x join S#window.{p.window(SLIDING)} as y {p.of('y.').selection()}"
    return text + (_query(2, f"{join} insert into Out2") if p.chance(0.6) else "")


MAKERS: Final[Mapping[str, Callable[[Parts], str]]] = {
    "filters": _filters,
    "aggregates": _aggregates,
    "windows": _windows,
    "chains": _chains,
    "rates": _rates,
    "joins": _joins,
    "patterns": _patterns,
    "sequences": _sequences,
    "absences": _absences,
    "partitions": _partitions,
    "tables": _tables,
    "named_windows": _named_windows,
    "triggers": _triggers,
}

#: The names of all categories.
CATEGORIES: Final = (*MAKERS, *STATE_MAKERS, "stores")


def random_case(category: str, seed: int) -> dict[str, Any]:
    """The case of a category that a seed gives."""
    random = Random(f"{category} {seed}")
    parts = Parts(random)
    if category in STATE_MAKERS:
        text, steps = STATE_MAKERS[category](parts, ATTRIBUTES)
        return {"name": f"{category} {seed}", "app": _DEFINED + text.rstrip(), "inputs": steps}
    if category == "stores":
        return {"name": f"{category} {seed}", **_stored(parts)}
    app = _DEFINED + MAKERS[category](parts).rstrip()
    return {"name": f"{category} {seed}", "app": app, "inputs": _inputs(parts)}


def _stored(p: Parts) -> dict[str, Any]:
    """An app whose table or aggregation is in a store: its members but the name."""
    if p.chance(0.4):
        text, steps = aggregation_case(p, ATTRIBUTES, is_stored=True)
        return {"app": _DEFINED + text.rstrip(), "inputs": steps, STORE: ""}
    text = ""
    while "@PrimaryKey" not in text:
        text = _tables(p)
    steps = _inputs(p, may_restart=False)
    for step in steps:
        for row in (step.get("data"), *(event[1] for event in step.get("events", ()))):
            # A store refuses a key without a value.
            if row is not None and row[0] is None:
                row[0] = "x"
    return {"app": _DEFINED + text.rstrip(), "inputs": steps, STORE: p.one(*OPTIONS)}


def _inputs(p: Parts, *, may_restart: bool = True) -> list[dict[str, Any]]:
    """Events and time; in playback each event has its own time, and some are late."""
    played = p.chance(0.25)
    restarts = p.chance(0.05) and may_restart
    now_ms = 10_000
    # The start is a whole second: schedules name it, and the first event there is a choice.
    steps: list[dict[str, Any]] = [] if played else [{"sleep_ms": 1}]
    for _ in range(p.random.randint(4, 14)):
        stream = p.one("S", "S", "T")
        passes = p.random.choice((0, 0, 1, 50, 100, 100, 150, 1000))
        if played:
            now_ms += passes
            steps.append({"stream": stream, "data": _row(p, now_ms), "ts": now_ms})
            continue
        if passes:
            steps.append({"sleep_ms": passes})
        if p.chance(0.1):
            count = p.random.randint(1, 4)
            events = [[{"$now": 0}, _row(p, None)] for _ in range(count)]
            steps.append({"stream": stream, "events": events})
        else:
            steps.append({"stream": stream, "data": _row(p, None)})
        if restarts and p.chance(0.2):
            steps += [{"snapshot": "s"}, {"restart": "s"}]
    steps.append({"advance_ms": 3000})
    return steps


def _row(p: Parts, now_ms: int | None) -> list[Any]:
    late = -p.random.choice((0, 0, 0, 0, 1, 120))
    values: list[Any] = [
        p.one("x", "x", "y", "z"),
        p.random.randint(-1, 3),
        p.random.choice((0, 1, 2, 7, 2**40)),
        p.random.choice((0.5, 1.5, 2.25, -1.0)),
        p.random.choice((0.1, 0.2, 1.5, 2.5, -3.0)),
        p.chance(0.5),
        {"$now": late} if now_ms is None else now_ms + late,
    ]
    for place in range(6):
        if p.chance(0.05):
            values[place] = None
    return values
