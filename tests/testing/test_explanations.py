"""Differences that the fuzzer explains as a choice, and those that it does not."""

from __future__ import annotations

import pytest

from tests.support.paths import CASES
from tools import engine_answers
from tools.fuzz.explanations import EXPLANATIONS, explain

DIRECTORY = CASES / "conformance"
STREAM = "define stream S (k string, v int); "
NULL = [{"stream": "S", "data": [None, 1]}]
NOT_RESTORED = "CannotRestoreSiddhiAppStateException: ClassCastException"

#: The app, the engine's log, whether its time is that of the events, and words of the reason.
CHOICES = [
    (
        "from S#window.sort(2, v) select k insert into O;",
        'because "comparableVariable1" is null',
        "sorted",
    ),
    ("from S#window.session(1 sec, k) select k insert into O;", '"key" is null', "session key"),
    (
        "from S#window.time(1 sec) select sum(v) as t output snapshot every 1 sec insert into O;",
        'because "data[i]" is null',
        "next to the aggregates",
    ),
    (
        "from S#window.time(9) select k, v, sum(v) as t output snapshot every 9 insert into O;",
        "ArrayIndexOutOfBoundsException",
        "several aggregates",
    ),
    (
        "from S#window.length(1) as x join T as y on x.o select x.k as k insert into O;",
        'the return value of "java.lang.Boolean.booleanValue()" ExpressionExecutor.execute(',
        "condition that is null",
    ),
    (
        "@info(name='a') from S select and(o) as n insert into O; @info(name='b') from S select k;",
        "SiddhiAppRuntimeException: .. Exception on class ..",
        "other readers",
    ),
    ("from S select stdDev(v) as s insert into O;", NOT_RESTORED, "stdDev"),
    ("from S#window.timeLength(1 sec, 2) select k insert into O;", NOT_RESTORED, "such a state"),
    (
        "@PrimaryKey('k') @Index('v') define table D (k string, v int);",
        "NullPointerException",
        "fails on a null",
    ),
    (
        "define window W (k string) session(1 sec);",
        'NullPointerException: "this.onAfterWindowData" is null',
        "named window of sessions",
    ),
    ("@PrimaryKey('v') define table D (k string, v int);", "ClassCastException", "numbers"),
]
SILENT = [
    (
        "from S#window.lengthBatch(2) as x join S#window.length(1) as y select x.k insert into O;",
        "lengthBatch",
    ),
    (
        "from S#window.length(1) as x join S#window.timeBatch(9) as y select x.k insert into O;",
        "timeBatch",
    ),
    (
        "define window W (k string) batch(); from S as x join W as y select x.k insert into O;",
        "named batch",
    ),
    (
        "@PrimaryKey('k') define table D (k string); from S delete D on D.k == k and D.a > a;",
        "deletes nothing",
    ),
    (
        "@PrimaryKey('k') define table D (k string); from S update or insert into D on D.a == a;",
        "two rows with one primary key",
    ),
    (
        "partition with (k of S) begin from S#window.timeBatch(1 sec) select k insert into O; end;",
        "first key's batch",
    ),
    ("@Index('v') define table D (k string, v int);", "hash codes"),
    (
        "@PrimaryKey('k') @Index('v') define table D (k string, v int); from S join D on D.v > 1;",
        "hash codes",
    ),
    ("from every e1=S?, e2=S[v >= e1.v]* select e2.k as k insert into O;", "optional steps"),
    (
        "from S#window.length(2) select count() as n, sum(v) as s, k output snapshot every 1 sec;",
        "several aggregates",
    ),
    ("define table D (k string); from S delete D on D.k == k;", "last row was deleted"),
    (
        "@PrimaryKey('k') define table D (k string); from S update D set D.v = D.v + v on k == k;",
        "computes null",
    ),
]
PLAYED = [
    ("from S#window.cron('* * * * * ?') select k insert into O;", "schedules"),
    ("define trigger T at every 1 sec;", "triggers"),
    ("from every not S for 1 sec -> e=S select e.k insert into O;", "absence"),
]


def asked(app: str, *, played: bool = False) -> dict[str, object]:
    steps = [{**step, "ts": 1} for step in NULL] if played else NULL
    return {"name": "asked", "app": STREAM + app, "inputs": steps}


@pytest.mark.parametrize(("app", "said", "words"), CHOICES, ids=[c[2] for c in CHOICES])
def test_what_the_engine_says_of_its_failure_explains_a_difference(
    app: str, said: str, words: str
) -> None:
    answer = {"status": "ok", "log": [{"level": "ERROR", "throwable": said}]}
    assert words in str(explain(asked(app), answer))
    assert explain(asked("from S select k insert into O;"), answer) is None
    silent = explain(asked(app), {"status": "ok", "log": None})
    assert words not in str(silent) or "@Index" in app


@pytest.mark.parametrize(("app", "words"), SILENT, ids=[c[1] for c in SILENT])
def test_some_choices_are_known_by_the_app_alone(app: str, words: str) -> None:
    assert words in str(explain(asked(app), {"status": "ok"}))


@pytest.mark.parametrize(("app", "words"), PLAYED, ids=[c[1] for c in PLAYED])
def test_schedules_are_otherwise_under_playback_only(app: str, words: str) -> None:
    assert words in str(explain(asked(app, played=True), {"status": "ok"}))
    assert explain(asked(app), {"status": "ok"}) is None


def test_rows_that_are_found_by_their_key_are_in_its_order() -> None:
    table = "@PrimaryKey('k') @Index('v') define table D (k string, v int); "
    join = "from S as x join D on x.k == D.k select D.v as v insert into O;"
    assert explain(asked(table + join), {"status": "ok"}) is None


def test_matches_of_sequences_are_otherwise_with_arrays_only() -> None:
    app = "from every e1=S*, e2=S[v > 1]+ select e1.k as a, e2.k as c insert into O;"
    sent = [{"stream": "S", "events": [[1, ["x", 1]], [1, ["y", 2]]]}]
    for each in (app, "from e1=S<0:2> select e1.k as a insert into O;"):
        assert "of its array" in str(explain({**asked(each), "inputs": sent}, {"status": "ok"}))
        assert explain(asked(each), {"status": "ok"}) is None


def test_timers_of_a_join_in_a_partition_may_be_due_for_two_keys() -> None:
    join = "from S#window.time(9) as x join S#window.length(1) as y select x.k insert into O; "
    case = asked(f"partition with (k of S) begin {join}end;", played=True)
    tied = {**case, "inputs": [{**step, "ts": 1} for step in NULL * 2]}
    assert "several keys' timers" in str(explain(tied, {"status": "ok"}, of_ties=True))
    assert explain(tied, {"status": "ok"}) is None
    assert explain(case, {"status": "ok"}, of_ties=True) is None


def test_a_null_among_the_least_of_longs_is_too_much_for_a_sum() -> None:
    app = "define stream B (b long); from B#window.length(2) select sum(minimum(b, b)) as n "
    case = asked(app + "insert into O;")
    assert "2^53" in str(explain(case, {"status": "ok"}))
    full = [{"stream": "B", "data": [1]}]
    assert explain({**case, "inputs": full}, {"status": "ok"}) is None
    for other in (app.replace("sum(", "avg("), app.replace("#window.length(2)", "")):
        assert explain(asked(other + "insert into O;"), {"status": "ok"}) is None


def test_timers_of_two_queries_may_be_due_at_one_instant() -> None:
    query = "from S#window.time(1 sec) select k insert into O; "
    limited = "from O select k output last every 100 milliseconds insert into P; "
    for app in (query + query, query + limited, f"partition with (k of S) begin {query}end;"):
        assert "one millisecond" in str(explain(asked(app), {"status": "ok"}, of_ties=True))
        assert explain(asked(app), {"status": "ok"}) is None
        assert explain(asked(app, played=True), {"status": "ok"}, of_ties=True) is None
    assert explain(asked(query), {"status": "ok"}, of_ties=True) is None


def test_other_sequences_and_snapshots_of_several_aggregates_are_as_in_the_engine() -> None:
    for query in (
        "from every e1=S?, e2=S[v >= e1.v]+ select e2.k as k insert into O;",
        "from S#window.length(2) select k, count() as n, sum(v) as s output snapshot every 1 sec;",
        "from S#window.length(2) select count() as n, sum(v) + 1 as s output snapshot every 1 sec;",
    ):
        assert explain(asked(query), {"status": "ok"}) is None


def test_every_reason_is_shown_by_a_recorded_case() -> None:
    shown = set(engine_answers.differences(DIRECTORY).values())
    assert {one.reason for one in EXPLANATIONS} <= shown
