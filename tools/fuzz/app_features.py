"""Features of an app's text that explanations ask for: sequences and selected attributes.

Not a parser: it reads the fuzzer's apps, and their reduced forms.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Beginning of the call of an aggregator.
AGGREGATE: Final = (
    r"(?:sum|avg|count|min|max|stdDev|distinctCount|minForever|maxForever"
    r"|`?and`?|`?or`?|unionSet)\("
)
#: Clauses that may follow a select clause before ``output``.
_ENDS: Final = r"\s(?:group by|having|order by|limit|offset|output)\s"
_STEP: Final = r"e\d=\w+(?:\[[^\]]*\])?"
_SEQUENCE: Final = re.compile(
    rf"\bfrom\s+(?:every\s+)?{_STEP}[?*],\s(?:{_STEP}[?*+]?,\s)*{_STEP}[?*]\s+(?:select|within)\b"
)


def begins_and_ends_with_nothing(app: str) -> bool:
    """Whether a sequence exists whose first and last step need no event.

    >>> begins_and_ends_with_nothing("from every e1=S?, e2=S, e3=S[a >= e2.a]* select e1.a as a")
    True
    >>> begins_and_ends_with_nothing("from e1=S?, e2=S+ select e1.a as a insert into O;")
    False
    """
    return _SEQUENCE.search(app) is not None


def sums_least_longs(app: str) -> bool:
    """Whether there is a sum over the smallest of several longs.

    >>> stream = "define stream S (k string, a int, b long); from S "
    >>> sums_least_longs(stream + "select sum(minimum(S.b, S.b)) as n")
    True
    >>> sums_least_longs(stream + "select sum(minimum(a, a)) + maximum(b, b) as n")
    False
    """
    longs = set(re.findall(r"\b(\w+) long\b", app))
    given = re.findall(r"\bsum\(minimum\(([^()]*)\)", app)
    return any(not longs.isdisjoint(re.findall(r"\w+", arguments)) for arguments in given)


def columns(app: str) -> list[str]:
    """The expressions that the query with snapshots selects, each without its name.

    >>> columns("from S select max(a, b) as m, k output snapshot every 1 sec insert into O;")
    ['max(a, b)', 'k']
    """
    clause = re.search(rf"\bselect\s([^;]*?)(?:{_ENDS}[^;]*?)?\boutput snapshot\b", app)
    if clause is None:
        return []
    found, depth, start = [], 0, 0
    text = clause.group(1) + ","
    for at, sign in enumerate(text):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            found.append(re.sub(r"\s+as\s+\w+\s*$", "", text[start:at]).strip())
            start = at + 1
    return found


def grouped(app: str) -> list[str]:
    """The attributes that the query with snapshots groups by.

    >>> grouped("from S select a as n group by a, x.k limit 1 output snapshot every 1 sec")
    ['a', 'x.k']
    """
    clause = re.search(r"\bgroup by\s+([\w.]+(?:,\s*[\w.]+)*)[^;]*\boutput snapshot\b", app)
    return re.split(r",\s*", clause.group(1)) if clause else []


def is_aggregate(column: str) -> bool:
    """Whether a selected attribute is one call of an aggregator, and nothing around it.

    >>> is_aggregate("sum(a)"), is_aggregate("sum(a) + count()"), is_aggregate("max(a, b)")
    (True, False, True)
    """
    begun = re.match(AGGREGATE, column)
    if begun is None:
        return False
    depth = 1
    for at in range(begun.end(), len(column)):
        depth += {"(": 1, ")": -1}.get(column[at], 0)
        if depth == 0:
            return at == len(column) - 1
    return False


def compares_aggregates(aggregates: Sequence[int], count: int) -> bool:
    """Whether the engine confuses aggregates among the ``count`` attributes of a snapshot.

    It skips one at a time, starting with the first. As the next it uses the one at the place of the
    attribute, not of the aggregate.

    ``aggregates``: their places, growing.

    >>> [compares_aggregates(places, 4) for places in ([0, 1], [1, 2], [2, 3])]
    [True, False, True]
    """
    if len(aggregates) in (0, count):
        return False
    passed, skips = 0, aggregates[0]
    for at in range(count):
        if at == skips:
            passed += 1
            if passed == len(aggregates):
                skips = -1
            elif at >= len(aggregates):
                return True
            else:
                skips = aggregates[at]
        elif at in aggregates:
            return True
    return False
