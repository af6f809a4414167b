"""States of parts of a group that are kept."""

from __future__ import annotations

from mesh.language.parser import parse
from mesh.plan.bind import bind
from mesh.plan.states import continued

INSIDE = (
    "from S#window.length(2) select k, sum(v) as t insert into {0};",
    "from every e1=S -> e2=S[v >= e1.v] select e1.v as a, e2.v as b insert into {0};",
    "from S select s, count() as c output last every 10 milliseconds insert into {0};",
    (
        "from S#window.timeBatch(12) select k, count() as c insert into #I{0}; "
        "from #I{0} select k, sum(c) as c insert into {0};"
    ),
)


def kept_inside(old: str, new: str) -> set[str]:
    """The streams of the queries in partitions that go on."""
    apps = bind(parse(old)), bind(parse(new))
    going = [one for one, _ in continued(*apps) if one.partition is not None]
    queries = [apps[1].partitions[one.partition or 0].queries[one.number] for one in going]
    return {q.target.name for q in queries if q.target.name.startswith("P")}
