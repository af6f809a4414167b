"""Random cases of aggregations, and of on-demand queries over aggregations, tables and windows.

Times of ``aggregate by`` differ, since the order of equal ones is a choice; spans begin with a
bucket; ``order by`` names what tells rows apart, since the engine's order is that of a hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mesh.testing.conformance.cases import START_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tools.fuzz.random_parts import Parts

    Steps = list[dict[str, Any]]

_DAY_MS: Final = 86_400_000
_LONG_NAMES: Final = {
    "sec": "seconds",
    "min": "minutes",
    "hour": "hours",
    "day": "days",
    "month": "months",
    "year": "years",
}
_DURATIONS: Final = tuple(_LONG_NAMES)
#: Beginnings of spans, of two years and of a day.
_STARTS: Final = (1_514_764_800_000, 1_546_300_800_000, START_MS - START_MS % _DAY_MS)
_STARS: Final = (
    "'2019-**-** **:**:**'",
    "'2019-10-** **:**:**'",
    "'2019-10-07 **:**:**'",
    "'2019-10-** **:**:** +00:00'",
)
_PASSED_MS: Final = (0, 0, 1, 100, 500, 999, 1000, 1000, 5000, 60_000, 3_600_000, _DAY_MS)


def aggregation_case(p: Parts, attributes: str, *, is_stored: bool = False) -> tuple[str, Steps]:
    """An app with an aggregation, a join with it, and queries of it; and its steps.

    ``is_stored``: as a store can play it, without purges and queries.
    """
    kept = _durations(p)
    keys = p.one("", "k", "k", "k, a", "o")
    names = [f"n{number}" for number in range(p.random.randint(1, 3))]
    is_timed = p.chance(0.4)
    is_purged = p.chance(0.2) and not is_stored
    purge = "@purge(enable='true', interval='10 sec') " if is_purged else "@purge(enable='false') "
    values = [f"{_base_value(p)} as {name}" for name in names]
    selected = ", ".join([*([keys] if keys else []), *values])
    source, defined, feeding = "S", "", ""
    if p.chance(0.3):
        source, defined = "M", f"define stream M ({attributes}); "
        feeding = f"from S{p.filter(0.8)} select * insert into M; "
    text = (
        f"{defined}{purge}define aggregation A from {source} select {selected}"
        f"{f' group by {keys}' if keys else ''} aggregate {'by ts ' if is_timed else ''}"
        f"every {', '.join(kept) if p.chance(0.5) else _range(kept)}; "
    )
    if "..." in text:
        kept = _DURATIONS[_DURATIONS.index(kept[0]) : _DURATIONS.index(kept[-1]) + 1]
    groups = [f"A.{key}" for key in keys.split(", ") if key]
    # The engine tests a condition on a latest value before it merges rows.
    of_value = [" on not (A.n0 is null)"] if "(" in values[0] else []
    on = p.one("", *(f" on x.{key[2:]} == {key}" for key in groups), *of_value)
    columns = ", ".join(
        ["AGG_TIMESTAMP as t", "x.a as own", *(f"{key} as {key[2:]}" for key in groups), *names]
    )
    order = ", ".join(["t", *(key[2:] for key in groups)])
    text += (
        f"{feeding}@info(name='q1') from T as x {p.one('join', 'left outer join')} A{on} "
        f"{_span(p, kept)} select {columns} order by {order} insert into Out"
    )
    queries = [] if is_purged or is_stored else [_asking(p, kept, groups, names) for _ in range(4)]
    return text + "; ", _steps(p, queries, is_timed=is_timed)


def _durations(p: Parts) -> tuple[str, ...]:
    count = p.random.randint(1, 3)
    return tuple(sorted(p.random.sample(_DURATIONS, count), key=_DURATIONS.index))


def _range(kept: tuple[str, ...]) -> str:
    return f"{kept[0]}...{kept[-1]}" if len(kept) > 1 else kept[0]


def _base_value(p: Parts) -> str:
    """An aggregate or a latest value; ``avg`` of floats, as the engine cuts that of integers."""
    match p.random.randrange(8):
        case 0 | 1:
            return f"sum({p.one('a', 'b', 'f', 'd')})"
        case 2:
            return f"avg({p.one('f', 'd')})"
        case 3:
            return "count()"
        case 4 | 5:
            return f"{p.one('min', 'max')}({p.one('a', 'b', 'f', 'd')})"
        case 6:
            return p.one("a", "b", "f", "d")
        case _:
            return f"{p.one('a', 'b')} {p.one('+', '-', '*')} {p.one('a', '2', 'd')}"


def _span(p: Parts, kept: tuple[str, ...]) -> str:
    per = p.one(*kept)
    # A span that begins or ends in the midst of a bucket is a choice of ours.
    starts = _STARTS[:2] if per in ("month", "year") else _STARTS
    start = p.random.choice(starts)
    length_ms = {"sec": 1000, "min": 60_000, "hour": 3_600_000, "day": _DAY_MS}.get(per)
    end = START_MS + 800 * _DAY_MS
    if length_ms is not None and p.chance(0.7):
        end = START_MS - START_MS % length_ms + p.random.randint(1, 5) * length_ms
    stars = _STARS if per not in ("month", "year") else _STARS[:1]
    within = p.one(*stars, f"{start}L, {end}L")
    return f"within {within} per '{p.one(per, _LONG_NAMES[per])}'"


def _asking(p: Parts, kept: tuple[str, ...], groups: list[str], names: list[str]) -> str:
    keys = [key[2:] for key in groups]
    on = p.one("", "", *(f" on {_equal(p, key)}" for key in keys))
    span = _span(p, kept)
    if p.chance(0.3):
        total = f"select count() as n, max({names[0]}) as m"
        by = f" group by {keys[0]} order by n, m" if keys and p.chance(0.5) else ""
        return f"from A{on} {span} {total}{by}"
    columns = ", ".join(["AGG_TIMESTAMP as t", *keys, *names])
    limit = p.one("", "", " limit 2", " limit 2 offset 1")
    return f"from A{on} {span} select {columns} order by {', '.join(['t', *keys])}{limit}"


def _equal(p: Parts, name: str) -> str:
    values = {"k": "'x'", "a": "1", "o": "true"}
    return f"{name} {p.one('==', '!=')} {values[name]}"


def _steps(p: Parts, queries: list[str], *, is_timed: bool) -> Steps:
    """Events of S and T, time that passes, and the queries."""
    offsets = p.random.sample(range(-_DAY_MS, 600_000), 20)
    steps: Steps = [{"sleep_ms": 1}]
    for _ in range(p.random.randint(5, 14)):
        passed = p.random.choice(_PASSED_MS)
        if passed:
            steps.append({"sleep_ms": passed})
        if queries and p.chance(0.3):
            steps.append({"query": p.one(*queries)})
        # A null group is shown as a text here: keys have values.
        row = _row(p, {"$t0": offsets.pop()} if is_timed else None, has_null_keys=False)
        steps.append({"stream": p.one("S", "S", "S", "T"), "data": row})
    steps += [{"query": text} for text in queries]
    return steps


def _row(p: Parts, time: Any, *, has_null_keys: bool = True) -> list[Any]:
    """A row of ``ATTRIBUTES``; sums of these doubles do not depend on their order."""
    values: list[Any] = [
        p.one("x", "x", "y", "z"),
        p.random.randint(-1, 3),
        p.random.choice((0, 1, 2, 7, 2**40)),
        p.random.choice((0.5, 1.5, 2.25, -1.0)),
        p.random.choice((0.25, 0.5, 1.5, 2.5, -3.0)),
        p.chance(0.5),
    ]
    for place in (0, 1, 5, 2, 3, 4) if has_null_keys else (2, 3, 4):
        if p.chance(0.06):
            values[place] = None
    return [*values, time]


_COLUMNS: Final = "k string, a int, d double"


def on_demand_case(p: Parts, attributes: str) -> tuple[str, Steps]:
    """An app with a table or a window, and reads and changes of it; and its steps."""
    if p.chance(0.3):
        window = p.window(("length", "lengthBatch", "time", "timeBatch", "timeLength", "sort"))
        text = f"define window D ({attributes}) {window}; from S select * insert into D; "
        return text, _asked(p, [_read(p) for _ in range(6)])
    key = p.one("", "@PrimaryKey('k') ", "@PrimaryKey('k', 'a') ")
    same = "D.k == k and D.a == a" if "'a'" in key else "D.k == k"
    text = f"{key}define table D ({_COLUMNS}); "
    text += f"from S select k, a, d update or insert into D on {same}; "
    text += "from T delete D on D.a == a; "
    queries = []
    for number in range(6):
        queries.append(_read(p))
        if p.chance(0.6):
            queries.append(_change(p, number, same))
            queries.append("from D select k, a, d")
    return text, _asked(p, queries)


def _asked(p: Parts, queries: list[str]) -> Steps:
    steps: Steps = [{"sleep_ms": 1}]
    for query in queries:
        for _ in range(p.random.randint(0, 3)):
            steps.append({"sleep_ms": p.random.choice((1, 50, 100, 1000))})
            row = _row(p, {"$now": 0})
            steps.append({"stream": p.one("S", "S", "S", "T"), "data": row})
        steps.append({"query": query})
    return steps


def _read(p: Parts) -> str:
    on = f" on {_condition(p)}" if p.chance(0.6) else ""
    match p.random.randrange(4):
        case 0:
            return f"from D{on} select k, a, d"
        case 1:
            limit = p.one("", " limit 2", " limit 1 offset 1", " offset 1")
            order = p.one("a", "d", "k") + p.one("", " desc")
            return f"from D{on} select k, a, d order by {order}{limit}"
        case 2:
            value = p.one("sum(a)", "avg(d)", "count()", "min(a)", "max(d)", "distinctCount(k)")
            having = p.one("", "", " having n > 1")
            return f"from D{on} select k, {value} as n group by k{having}"
        case _:
            return f"from D{on} select {p.one('sum(a)', 'count()', 'max(d)', 'avg(a)')} as n"


def _condition(p: Parts, prefix: str = "D.") -> str:
    one = p.one(
        f"{prefix}k == '{p.one(*'xyz')}'",
        f"{prefix}k != 'x'",
        f"{prefix}a {p.one('==', '<', '>=', '!=')} {p.one('0', '1', '2')}",
        f"{prefix}d {p.one('<', '>')} {p.one('0.5', '1.0')}",
        f"{prefix}d is null",
        f"not ({prefix}a == 1)",
    )
    if p.chance(0.3):
        other = f"{prefix}a {p.one('>', '<=')} {p.one('0', '1')}"
        return f"{one} {p.one('and', 'or')} {other}"
    return one


def _change(p: Parts, number: int, same: str) -> str:
    """A change: keys that are inserted are new, since the engine keeps quiet on a refused row."""
    values = f"select 'n{number}' as k, {p.one('1', '7')} as a, {p.one('1.5', '2.5')} as d"
    match p.random.randrange(4):
        case 0:
            return f"{values} insert into D"
        case 1:
            return f"delete D on {_condition(p)}"
        case 2:
            return f"update D set {p.one('D.d = 9.5', 'D.d = 0.25')} on {_condition(p)}"
        case _:
            return f"{values} update or insert into D on {same}"


STATE_MAKERS: Final[Mapping[str, Callable[[Parts, str], tuple[str, Steps]]]] = {
    "aggregations": aggregation_case,
    "on_demand": on_demand_case,
}
