"""Hints of refused texts: each leads to a text that is valid."""

from __future__ import annotations

from typing import Final

from mesh.client.checking import check
from tests.support.together import together

_HEAD: Final = (
    "define stream S (k string, j string, v int, l long, b bool, t string); "
    "define stream R (k string, v int); "
)

_PLACES: Final = "define stream P (k string, x double, y double); "

#: A refused text, a part of its hint, and the text with the hint applied.
_TEXTS: Final = (
    (
        "from S[v > 1 xor l > 1] select k insert into O;",
        "(a > 1) != (b > 1)",
        "from S[(v > 1) != (l > 1)] select k insert into O;",
    ),
    (
        "from S[!b] select k insert into O;",
        "write 'not' before a condition",
        "from S[not b] select k insert into O;",
    ),
    (
        "from S[k == null] select k insert into O;",
        "test 'a is null'",
        "from S[k is null] select k insert into O;",
    ),
    (
        "from S[k == v] select k insert into O;",
        "convert(x, 'int')",
        "from S[convert(k, 'int') == v] select k insert into O;",
    ),
    (
        "from S[b == k] select k insert into O;",
        "convert(x, 'bool')",
        "from S[b == convert(k, 'bool')] select k insert into O;",
    ),
    (
        "from S[b == 1] select k insert into O;",
        "'x' or 'not x'",
        "from S[b] select k insert into O;",
    ),
    (
        "from S[k > j] select k insert into O;",
        "str:strcmp(a, b) > 0",
        "from S[str:strcmp(k, j) > 0] select k insert into O;",
    ),
    (
        "from S[k > 5] select k insert into O;",
        "convert(x, 'int')",
        "from S[convert(k, 'int') > 5] select k insert into O;",
    ),
    (
        "from S select k + 'x' as y insert into O;",
        "str:concat(a, b)",
        "from S select str:concat(k, 'x') as y insert into O;",
    ),
    (
        "from S select k * j as y insert into O;",
        "convert(x, 'double')",
        "from S select convert(k, 'double') * convert(j, 'double') as y insert into O;",
    ),
    (
        (
            "from S select json:toObject(k) as o insert into M; "
            "from M[o == 'x'] select o insert into O;"
        ),
        "cast(x, 'string')",
        (
            "from S select json:toObject(k) as o insert into M; "
            "from M[cast(o, 'string') == 'x'] select o insert into O;"
        ),
    ),
    (
        "from S select sum(k) as y insert into O;",
        "convert(x, 'double')",
        "from S select sum(convert(k, 'double')) as y insert into O;",
    ),
    (
        "from S select count(*) as n insert into O;",
        "write count()",
        "from S select count() as n insert into O;",
    ),
    (
        "from S select default(v, 'none') as y insert into O;",
        "convert(x, 'string')",
        "from S select default(convert(v, 'string'), 'none') as y insert into O;",
    ),
    (
        "from S select v % 2 as m, count() as n group by v % 2 insert into O;",
        "in an earlier query",
        (
            "from S select v % 2 as m insert into M; "
            "from M select m, count() as n group by m insert into O;"
        ),
    ),
    (
        "from S select str:lower(k) as y, count() as n group by str:lower(k) insert into O;",
        "in an earlier query",
        (
            "from S select str:lower(k) as y insert into M; "
            "from M select y, count() as n group by y insert into O;"
        ),
    ),
    (
        "from S select v % 2 as m, count() as n group by m insert into O;",
        "in an earlier query",
        (
            "from S select v % 2 as m insert into M; "
            "from M select m, count() as n group by m insert into O;"
        ),
    ),
    (
        "from S#window.lengthBatch(3) select k order by v + 1 insert into O;",
        "in 'select'",
        "from S#window.lengthBatch(3) select k, v + 1 as w order by w insert into O;",
    ),
    (
        "from S select k, sum(v) as y group by k having l > 1 insert into O;",
        "select l, ..",
        "from S select l, k, sum(v) as y group by k having l > 1 insert into O;",
    ),
    (
        "from S#window.lengthBatch(3) select k order by v insert into O;",
        "select v, ..",
        "from S#window.lengthBatch(3) select v, k order by v insert into O;",
    ),
    (
        (
            "define window W (k string, v int) length(3); from R insert into W; "
            "from W#window.length(2) select k insert into O;"
        ),
        "from W select * insert into M",
        (
            "define window W (k string, v int) length(3); from R insert into W; "
            "from W select * insert into M; from M#window.length(2) select k insert into O;"
        ),
    ),
    (
        "from S#window.externalTime(eventTimestamp(), 1 min) select k insert into O;",
        "from S select .. as x insert into M",
        (
            "from S select k, eventTimestamp() as x insert into M; "
            "from M#window.externalTime(x, 1 min) select k insert into O;"
        ),
    ),
    (
        "from every (e1=S -> e2=R within 5 sec) select e1.k as k insert into O;",
        "(e1=S -> e2=T) within 1 min",
        "from every (e1=S -> e2=R) within 5 sec select e1.k as k insert into O;",
    ),
    (
        "from every e1=S -> e2=R select eventTimestamp(e1) as y insert into O;",
        "write e1.k",
        "from every e1=S -> e2=R select e1.k as y insert into O;",
    ),
    (
        "from every e1=S -> e2=R select eventTimestamp(e1.v) as y insert into O;",
        "eventTimestamp() as t in an earlier query",
        (
            "from S select v, eventTimestamp() as t insert into M; "
            "from every e1=M -> e2=R select e1.t as y insert into O;"
        ),
    ),
    (
        (
            "@source(type='inMemory', topic='x', @map(type='json', @attributes(at='$.x'))) "
            "define stream T (a string); from T select a insert into O;"
        ),
        "in backquotes",
        (
            "@source(type='inMemory', topic='x', @map(type='json', @attributes(`at`='$.x'))) "
            "define stream T (`at` string); from T select `at` insert into O;"
        ),
    ),
    (
        "from S#window.externalTime(v, 1 min) select k insert into O;",
        "select convert(a, 'long') as x",
        (
            "from S select k, convert(v, 'long') as x insert into M; "
            "from M#window.externalTime(x, 1 min) select k insert into O;"
        ),
    ),
    (
        "from every e1=S -> e2=R within 1 hour and 30 min select e1.k as k insert into O;",
        "'1 hour 30 min'",
        "from every e1=S -> e2=R within 1 hour 30 min select e1.k as k insert into O;",
    ),
    (
        "define table T (k string, v int); from R update or insert T on T.k == k;",
        "'update or insert into T on ..'",
        "define table T (k string, v int); from R update or insert into T on T.k == k;",
    ),
    (
        "from S#window.length(3) select k insert expired event into O;",
        "'insert expired events into ..'",
        "from S#window.length(3) select k insert expired events into O;",
    ),
    (
        "define aggregation A from R select k, sum(v * 2) as t group by k aggregate every min;",
        "in an earlier query",
        (
            "define stream M (k string, w int); "
            "define aggregation A from M select k, sum(w) as t group by k aggregate every min; "
            "from R select k, v * 2 as w insert into M;"
        ),
    ),
    (
        (
            "define trigger Tick at every 1 sec; from Tick join R#window.length(3) as r "
            "on r.k == null select r.k as k insert into O;"
        ),
        "test 'a is null'",
        (
            "define trigger Tick at every 1 sec; from Tick join R#window.length(3) as r "
            "on r.k is null select r.k as k insert into O;"
        ),
    ),
    (
        "from S select case when b then 1 else 0 end as y insert into O;",
        "ifThenElse(condition, a, b)",
        "from S select ifThenElse(b, 1, 0) as y insert into O;",
    ),
    (
        "from S select v > 1 ? 1 : 0 as y insert into O;",
        "ifThenElse(condition, a, b)",
        "from S select ifThenElse(v > 1, 1, 0) as y insert into O;",
    ),
    (
        "from S select k || j as y insert into O;",
        "str:concat(a, b)",
        "from S select str:concat(k, j) as y insert into O;",
    ),
    (
        "from every e1=S e2=R select e1.k as k insert into O;",
        "'->' or ','",
        "from every e1=S -> e2=R select e1.k as k insert into O;",
    ),
    (
        "from every e1=S followed by e2=R select e1.k as k insert into O;",
        "by '->'",
        "from every e1=S -> e2=R select e1.k as k insert into O;",
    ),
    (
        "from S select count(distinct k) as n insert into O;",
        "distinctCount(a)",
        "from S select distinctCount(k) as n insert into O;",
    ),
    (
        "from S#window.time('5 sec') select k insert into O;",
        "without quotes: 5 sec",
        "from S#window.time(5 sec) select k insert into O;",
    ),
    (
        "from S select now() as t insert into O;",
        "currentTimeMillis()",
        "from S select currentTimeMillis() as t insert into O;",
    ),
    (
        "from S select k insert into #I;",
        "leave it out",
        "from S select k insert into I;",
    ),
    (
        "define aggregation A from S select sum(v) as t by l every sec;",
        "aggregate by ts every",
        "define aggregation A from S select sum(v) as t aggregate by l every sec;",
    ),
    (
        "from S[!(v > 1)] select k insert into O;",
        "write 'not' before a condition",
        "from S[not (v > 1)] select k insert into O;",
    ),
    (
        "@PrimaryKey('k,v') define table T (k string, v int); from R insert into T;",
        "'k', 'v'",
        "@PrimaryKey('k', 'v') define table T (k string, v int); from R insert into T;",
    ),
    (
        "from S[v > 1.] select k insert into O;",
        "write 1.0",
        "from S[v > 1.0] select k insert into O;",
    ),
    (
        "from S select v * 2. as y insert into O;",
        "write 2.0",
        "from S select v * 2.0 as y insert into O;",
    ),
    (
        r"from S[k == 'it\'s'] select k insert into O;",
        '""".."""',
        'from S[k == """it\'s"""] select k insert into O;',
    ),
    (
        r"from S[k == 'it\''] select k insert into O;",
        '""".."""',
        'from S[k == """it\'"""] select k insert into O;',
    ),
    (
        r'@sink(type="log", prefix="a \"b\"") define stream L (a int); from L insert into O;',
        '""".."""',
        '@sink(type="log", prefix="""a "b" """) define stream L (a int); from L insert into O;',
    ),
    (
        "from S#window.length 5 select k insert into O;",
        "length(..)",
        "from S#window.length(5) select k insert into O;",
    ),
    (
        "from S#log 'x' select k insert into O;",
        "log(..)",
        "from S#log('x') select k insert into O;",
    ),
    (
        "partition with (k of S) from S select k insert into O; end;",
        "Write 'begin'",
        "partition with (k of S) begin from S select k insert into O; end;",
    ),
    (
        (
            "@source(type='inMemory', topic='t', @map(type='json', @attributes('$.k', v='$.v'))) "
            "define stream X (k string, v int); from X select k insert into O;"
        ),
        "or to none",
        (
            "@source(type='inMemory', topic='t', @map(type='json', @attributes('$.k', '$.v'))) "
            "define stream X (k string, v int); from X select k insert into O;"
        ),
    ),
    (
        "from S#throttler:timeBatch(1 min, 0) select k, expiryTimeStamp as e insert into O;",
        "Use timeBatch(1 min, 0, true)",
        (
            "from S#window.timeBatch(1 min, 0, true) "
            "select k, eventTimestamp() + 60000L as e insert all events into O;"
        ),
    ),
    (
        f"{_PLACES}from P#geo:crosses(k, x, y, '{{..}}') select k, crosses insert into O;",
        "every e1=S, e2=S[geo:within(x, y, '{..}') != geo:within(e1.x, e1.y, '{..}')]",
        (
            f"{_PLACES}partition with (k of P) begin from every e1=P, e2=P[geo:within(x, y, "
            "'{..}') != geo:within(e1.x, e1.y, '{..}')] select e2.k as k insert into O; end;"
        ),
    ),
    (
        f"{_PLACES}from P#geo:stationary(k, x, y, 50.0) select k, stationary insert into O;",
        "every e1=S, e2=S[geo:distance(y, x, e1.y, e1.x) < 50.0]",
        (
            f"{_PLACES}partition with (k of P) begin from every e1=P, "
            "e2=P[geo:distance(y, x, e1.y, e1.x) < 50.0] select e2.k as k insert into O; end;"
        ),
    ),
    (
        f"{_PLACES}from P#geo:proximity(k, x, y, 50.0) select k insert into O;",
        "Join S#window.unique:ever(id) with itself",
        (
            f"{_PLACES}from P#window.unique:ever(k) as a join P#window.unique:ever(k) as b "
            "on geo:distance(a.y, a.x, b.y, b.x) < 50.0 and a.k != b.k "
            "select a.k as k insert into O;"
        ),
    ),
    (
        (
            "define aggregation A from S select k, stdDev(l) as d group by k "
            "aggregate every sec...min;"
        ),
        "a query has stdDev",
        "from S select k, stdDev(l) as d group by k insert into O;",
    ),
    (
        (
            "@sink(type='log', prefix='{{k}}') define stream O (k string); "
            "from S select k insert into O;"
        ),
        "Write it in the payload",
        (
            "@sink(type='log', @map(type='text', @payload('.. {{k}} ..'))) "
            "define stream O (k string); from S select k insert into O;"
        ),
    ),
    (
        "from S#window.expression('count() <= 5') select k insert into O;",
        "length(5)",
        "from S#window.length(5) select k insert into O;",
    ),
    (
        "from S#window.expressionBatch('last.v - first.v < 5') select k insert into O;",
        "timeBatch(1 min)",
        "from S#window.timeBatch(1 min) select k insert into O;",
    ),
    (
        "from S select geocode(k) as y insert into O;",
        "define function geocode[javascript]",
        (
            "define function geocode[javascript] return string { return data[0]; }; "
            "from S select geocode(k) as y insert into O;"
        ),
    ),
    (
        "from S select str:upper(v) as y insert into O;",
        "convert(x, 'string')",
        "from S select str:upper(convert(v, 'string')) as y insert into O;",
    ),
    (
        "from S#pol2Cart(v, v) select x insert into O;",
        "convert(x, 'double')",
        "from S#pol2Cart(convert(v, 'double'), convert(v, 'double')) select x insert into O;",
    ),
    (
        "from S select ifThenElse(v, 1, 2) as y insert into O;",
        "Write a condition",
        "from S select ifThenElse(v > 0, 1, 2) as y insert into O;",
    ),
    (
        "from S#window.length('5') select k insert into O;",
        "without quotes: 5",
        "from S#window.length(5) select k insert into O;",
    ),
    (
        "from S#window.time(k) select k insert into O;",
        "a constant",
        "from S#window.time(5 sec) select k insert into O;",
    ),
    (
        "from S select acme:loud(k) as y insert into O;",
        "define function f[javascript]",
        "from S select str:upper(k) as y insert into O;",
    ),
    (
        "from S select geo:getLatitudeByIP(k) as y insert into O;",
        "a table of places",
        (
            "define table P (k string, y double); "
            "from S join P on S.k == P.k select P.y as y insert into O;"
        ),
    ),
)


def test_all_elements_that_do_not_run_are_reported_at_once() -> None:
    checked = check(
        f"{_HEAD}define trigger Tick at every 1 sec; "
        "from S#window.expressionBatch('count() < 9') select k insert into A; "
        "from S#window.expression('count() < 3') select k insert into B;",
        {},
        "app",
    )
    assert [one.message.rpartition(" ")[2] for one in checked.warnings] == [
        "expressionBatch",
        "expression",
    ]


def _errors(text: str) -> list[str]:
    checked = check(_HEAD + text, {}, "app")
    return [str(one.hint) for one in (*checked.errors, *checked.warnings)]


@together(("text", "hint", "corrected"), _TEXTS)
def test_a_hint_leads_to_a_valid_text(text: str, hint: str, corrected: str) -> None:
    hints = _errors(text)
    assert hints, "the text is refused"
    assert any(hint in one for one in hints), hints
    assert _errors(corrected) == []
