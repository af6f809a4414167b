"""Parts of an app that its elements use, by name."""

from __future__ import annotations

import pytest

from mesh.language.parser import parse
from mesh.plan.bind import bind
from mesh.plan.dependencies import Uses, joined_aggregations, models_of, union, uses_of

HEAD = """
define stream S (k string, v double); define stream U (k string);
define table T (k string, v double); define window W (k string) length(2);
define trigger Tick at every 1 sec;
define aggregation A from S select k, sum(v) as total group by k aggregate every sec...day;
define function f[python] return double { return data[0] };
"""


def uses(query: str) -> Uses:
    app = bind(parse(HEAD + query))
    (element,) = app.queries or app.partitions
    return uses_of(element)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("from S[v > 1.0] select k insert into O;", Uses(reads=("S",), writes=("O",))),
        ("from S select k, f(v) as r insert into O;",
         Uses(reads=("S",), writes=("O",), scripts=("f",))),
        ("from S[f(v) > f(1.0)] select k insert into O;",
         Uses(reads=("S",), writes=("O",), scripts=("f",))),
        ("from S select k, v insert into T;", Uses(reads=("S",), tables=("T",))),
        ("from U[(T.k == k) in T] select k insert into O;",
         Uses(reads=("U",), writes=("O",), tables=("T",))),
        ("from U join T on U.k == T.k select U.k insert into O;",
         Uses(reads=("U",), writes=("O",), tables=("T",))),
        ("from S select k, v update or insert into T set T.v = f(v) on T.k == k;",
         Uses(reads=("S",), tables=("T",), scripts=("f",))),
        ("from S delete T on T.k == k;", Uses(reads=("S",), tables=("T",))),
        ("from S select k insert into W;", Uses(reads=("S",), windows=("W",))),
        ("from W select k insert into O;", Uses(writes=("O",), windows=("W",))),
        ("from Tick select triggered_time as t insert into O;",
         Uses(reads=("Tick",), writes=("O",))),
        ("from U join A on U.k == A.k within 0L, 1000L per 'sec' select A.total insert into O;",
         Uses(reads=("U",), writes=("O",), aggregations=("A",))),
        ("from every e1=S -> e2=U[k == e1.k] -> e3=S select e1.k insert into U;",
         Uses(reads=("S", "U"), writes=("U",))),
    ],
)  # fmt: skip
def test_a_query_uses_what_it_names(query: str, expected: Uses) -> None:
    assert uses(query) == expected


def test_a_partition_uses_what_its_queries_and_keys_do() -> None:
    found = uses(
        "partition with (k of S, f(1.0) > 0.0 as 'a' of U) begin "
        "from S select k insert into #I; from #I select k insert into O; "
        "from U select k insert into W; end;"
    )
    assert {"S", "U"} <= set(found.reads)
    assert "O" in found.writes
    assert found.windows == ("W",)
    assert found.scripts == ("f",)


def test_an_aggregation_uses_its_stream() -> None:
    app = bind(parse(HEAD + "from S select k insert into O;"))
    assert uses_of(app.aggregations[0]) == Uses(reads=("S",), aggregations=("A",))
    assert joined_aggregations(app) == frozenset()
    joined = "from U join A on U.k == A.k within 0L, 1000L per 'sec' select A.k insert into O;"
    assert joined_aggregations(bind(parse(HEAD + joined))) == {"A"}


def test_a_model_is_used_by_its_name() -> None:
    calls = (
        "from S#streamingml:updateHoeffdingTree('m', 2, v, k) select k insert into O;",
        "from S#streamingml:hoeffdingTreeClassifier('m', v) select k insert into O;",
    )
    found = [next(models_of(bind(parse(HEAD + one)).queries[0])) for one in calls]
    assert [(one.name, one.trains) for one in found] == [("m", True), ("m", False)]
    assert found[0].family == found[1].family
    assert [uses(one).models for one in calls] == [("m",), ("m",)]


def test_names_are_joined_each_once_in_the_order_of_first_mention() -> None:
    first = Uses(reads=("b", "a"), tables=("T",))
    second = Uses(reads=("a", "c"), writes=("b",))
    assert union([first, second]) == Uses(reads=("b", "a", "c"), writes=("b",), tables=("T",))
    assert union([]) == Uses()
