"""Event functions: documented examples, bounds of approximations, cuts and restores anywhere."""

from __future__ import annotations

import json
import math
from ast import literal_eval
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.errors import MeshError
from mesh.functions.catalogue import EVENT_FUNCTIONS, STATEFUL_FUNCTIONS
from mesh.language.parser import parse
from mesh.operators import event_functions
from mesh.operators.executor import Executor
from mesh.plan.bind import bind
from mesh.plan.build import plan
from mesh.plan.supported import check_supported
from tests.support.examples import examples
from tests.support.paths import CASES
from tests.support.recorder import DEFINE, END_MS, Log, Recorder, Step, at_once, log_of
from tests.support.recorder import run_in_pieces as pieces

START_MS = 1000


class Case(NamedTuple):
    title: str
    app: str
    log: Log
    rows: list[tuple[int, str]]


def read_cases() -> list[Case]:
    found = []
    text = (CASES / "functions" / "event_functions.txt").read_text("utf-8")
    for block in text.split("\n\n")[1:]:
        title, *lines = block.strip().splitlines()
        app = "\n".join(one for one in lines if not one.startswith(("in ", "out ")))
        log: Log = {"S": []}
        rows = []
        for line in lines:
            word, _, rest = line.partition(" ")
            if word == "in":
                time, k, v, s = rest.split(" ", 3)
                log["S"].append((START_MS + int(time), [json.loads(one) for one in (k, v, s)]))
            elif word == "out":
                time, values = rest.split(" ", 1)
                rows.append((START_MS + int(time), repr(json.loads(values))))
        found.append(Case(title.removeprefix("# "), app, log, rows))
    return found


FOUND = read_cases()


def rounded(rows: list[Any]) -> list[tuple[int, str]]:
    """Times and values; doubles with twelve digits, as pages of documentation have them."""
    return [
        (time, repr([round(v, 12) if isinstance(v, float) else v for v in literal_eval(row)]))
        for _, _, time, row in rows
    ]


@pytest.mark.parametrize("case", FOUND, ids=lambda case: case.title)
def test_an_example_gives_what_its_documentation_says(case: Case) -> None:
    assert rounded(at_once(case.app, case.log)) == case.rows


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", FOUND, ids=lambda case: case.title)
def test_an_example_survives_a_restore_after_each_event(case: Case) -> None:
    recorder = Recorder(case.app)
    for at, (time_ms, _) in enumerate(case.log["S"]):
        recorder.run([recorder.part(case.log, "S", at, at + 1)], {"S": time_ms})
        recorder.restart()
    recorder.run([], {"S": END_MS})
    assert sorted(recorder.rows) == at_once(case.app, case.log)


def test_every_function_has_an_example_and_an_operator() -> None:
    titles = {case.title.partition(",")[0].partition(" ")[0] for case in FOUND}
    names = {*EVENT_FUNCTIONS, *STATEFUL_FUNCTIONS}
    assert titles >= names
    assert set(event_functions.EVENT_FUNCTIONS) == names


STEP = st.tuples(
    st.just("S"),
    st.integers(0, 12),
    st.one_of(st.none(), st.integers(-1, 2)),
    st.one_of(st.none(), st.floats(-5, 5).map(lambda x: round(x, 1))),
    st.sampled_from([None, "a", "b", "null"]),
)
QUERIES = {
    "counts": """
    from S#window.time(20)#approximate:count(k, 0.1, 0.9)[k != 1]
    select k, count as a, countLowerBound as b insert all events into O;
    from S#approximate:distinctCountEver(v)#window.lengthBatch(3)#approximate:distinctCount(s)
    select k, distinctCountEver as a, distinctCount as b insert into O;""",
    "series": """
    from S#window.time(15)#timeseries:outlier(2, 5, 0.9, 1, v, k)#extrema:topK(s, 2)
    select Top1Element as a, outlier as b insert into O;
    from S#markov:markovChain(s, s, 9, 0.5, 2)#timeseries:lengthTimeForecast(20, 4, k, v, k)
    select forecastY as a, notify as b insert into O2;
    from S select kf:kalmanFilter(v) * 2.0 as a, k as b, kf:kalmanFilter(v, 0.1) as c
    insert into O3;""",
    "a join": """
    from S#approximate:distinctCountEver(s)#window.length(2) as a join
    S#timeseries:regress(v, k)#window.time(5) as b on a.k == b.k
    select a.distinctCountEver as a, b.beta1 as b insert into O;
    from S#extrema:topK(s, 1)#window.lengthBatch(2) as a join S#window.sort(2, k) as b on a.k == b.k
    select Top1Frequency as a, b.v as b insert into P;""",
    "an aggregation": """
    define aggregation A from S#approximate:count(k) select max(count) as m, k group by k
    aggregate every sec, min;
    from S join A on S.k == A.k within 0L, 9999999999L per 'seconds' select m as a, S.k as b
    insert into O;""",
    "counts of instances": """
    partition with (s of S) begin
    from S#window.length(2)#approximate:distinctCount(v) select k, distinctCount as a, s as b
    insert into O; end;
    from S[false] select k, 0L as a, s as b insert into O;""",
}


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEP, max_size=30), data=st.data())
def test_the_output_is_the_same_however_the_input_is_cut(
    name: str, steps: list[Step], data: Any
) -> None:
    log = log_of(steps, ("S",))
    recorder = Recorder(QUERIES[name])
    pieces(recorder, log, data, START_MS)
    recorder.run([], {"S": END_MS})
    assert sorted(recorder.rows) == at_once(QUERIES[name], log)


#: A model of each kind, with queries that train it and ask it in turn.
MODELS = {
    "perceptron": "#streamingml:updatePerceptronClassifier('m', b, k, v) select k insert into M;"
    "from R#streamingml:perceptronClassifier('m', k, v) select k, prediction as p, "
    "confidenceLevel as c insert into O;",
    "regression": "#streamingml:updateBayesianRegression('m', v, k) select k insert into M;"
    "from R#streamingml:bayesianRegression('m', k) select k, prediction as p, confidence as c "
    "insert into O;",
    "tree": "#streamingml:updateHoeffdingTree('m', 2, 10, 0, 0.1, 0.9, true, false, 2, k, v, b) "
    "select k, accuracy as a insert into M; from R#streamingml:hoeffdingTreeClassifier('m', k, v) "
    "select k, prediction as p, confidenceLevel as c insert into O;",
    "rules": "#streamingml:updateAMRulesRegressor('m', 0.1, 0.9, 10, 2, 2, k, v) "
    "select k, meanSquaredError as e insert into M; from R#streamingml:AMRulesRegressor('m', k) "
    "select k, prediction as p, meanSquaredError as c insert into O;",
    "clusters": "#streamingml:kMeansMiniBatch(3, 5, 7, k, v)#streamingml:bayesianRegression("
    "'m', k) select k, euclideanDistanceToClosestCentroid as p, prediction as c insert into O; "
    "from R#window.length(4)#streamingml:updateBayesianRegression('m', v, k) select k "
    "insert into M;",
}
PARTITIONED = "partition with (s of R) begin {} end;"


@pytest.mark.sampled(5)
@pytest.mark.parametrize("place", ["{}", PARTITIONED])
@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=examples(6), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 9), data=st.data())
def test_a_model_is_the_same_however_the_input_is_cut(
    name: str, place: str, seed: int, data: Any
) -> None:
    rng = Random(seed)
    rows: list[list[Any]] = [
        [rng.randrange(9), round(rng.random() * 10, 1), rng.choice("xy")] for _ in range(60)
    ]
    log: Log = {"S": [(START_MS + at, row) for at, row in enumerate(rows)]}
    text = "from S select k, v, s, v > k as b insert into R;" + place.format(
        f"from R{MODELS[name]}"
    )
    recorder = Recorder(text)
    recorder.outputs = ("O",)
    recorder.executor = Executor(recorder.app, recorder.outputs)
    pieces(recorder, log, data, START_MS)
    recorder.run([], {"S": END_MS})
    whole = Recorder(text)
    whole.outputs = ("O",)
    whole.executor = Executor(whole.app, whole.outputs)
    whole.run([whole.part(log, "S", 0, 60)], {"S": END_MS})
    assert len(whole.rows) == 60
    assert sorted(recorder.rows) == sorted(whole.rows)


@pytest.mark.thorough
def test_models_learn_what_can_be_learned() -> None:
    rng = Random(1)
    steps = [(rng.randrange(10), round(rng.random() * 10, 1)) for _ in range(1500)]
    log: Log = {
        "S": [(START_MS + at, [k, v, "up" if v > 5 else "down"]) for at, (k, v) in enumerate(steps)]
    }
    text = """
    from S#streamingml:updateHoeffdingTree('m', 2, k, v, s) select k insert into M;
    from S#streamingml:hoeffdingTreeClassifier('m', k, v) select s, prediction as p insert into O;
    """
    rows = [literal_eval(row) for *_, row in at_once(text, log)[-500:]]
    assert sum(s == p for s, p in rows) > 475
    for at, (time_ms, (k, _, _)) in enumerate(log["S"]):
        log["S"][at] = (time_ms, [k, 3.0 * k + 2, None])
    for name in ("AMRulesRegressor", "BayesianRegression"):
        asking = name[0].lower() + name[1:] if name[0] == "B" else name
        target = "k, v" if name[0] == "A" else "v, k"
        rows = [
            literal_eval(row)
            for *_, row in at_once(
                f"from S#streamingml:update{name}('m', {target}) select k insert into M;"
                f"from S#streamingml:{asking}('m', k) select v, prediction as p insert into O;",
                log,
            )
        ]
        # Rules are straight lines over parts of the range.
        assert all(abs(float(v) - p) < 4 for v, p in rows[-100:]), name


@pytest.mark.parametrize(
    ("dist", "code"),
    [("@dist(execGroup='a')", "MESH-P217"), ("@dist(execGroup='a', parallel='2')", "MESH-P216")],
)
def test_a_model_belongs_to_one_group_of_one_instance(dist: str, code: str) -> None:
    text = f"""@App:name('A') define stream S (k int, v double);
    {dist} from S#streamingml:updateBayesianRegression('m', v, k) select k insert into M;
    from S#streamingml:bayesianRegression('m', k) select k insert into O;"""
    with pytest.raises(MeshError, match='model "m"') as refusal:
        plan(text)
    assert refusal.value.code == code


def test_events_that_a_model_cannot_learn_from_fail() -> None:
    text = "from S#streamingml:updateHoeffdingTree('m', 2, k, s) select s, accuracy as a "
    log: Log = {"S": [(START_MS + at, [1, 0.0, s]) for at, s in enumerate("abca")]}
    rows = at_once(f"{text} insert into O;", log)
    assert [literal_eval(row)[0] for *_, row in rows] == ["a", "b", "a"]


#: Calls that compute with ``v``, and what they emit.
COMPUTED = {
    "perceptron": "#streamingml:updatePerceptronClassifier('m', s, v) select k insert into M; "
    "from S#streamingml:perceptronClassifier('m', k) select k, confidenceLevel as a insert into O;",
    "regression": "#streamingml:updateBayesianRegression('m', v, k) select k insert into M; "
    "from S#streamingml:bayesianRegression('m', k) select k, prediction as a insert into O;",
    "tree": "#streamingml:updateHoeffdingTree('m', 2, v, s) select k insert into M; "
    "from S#streamingml:hoeffdingTreeClassifier('m', k) select k, prediction as a insert into O;",
    "rules": "#streamingml:updateAMRulesRegressor('m', k, v) select k insert into M; "
    "from S#streamingml:AMRulesRegressor('m', k) select k, prediction as a insert into O;",
    "clusters": "#streamingml:kMeansIncremental(2, 0.5, v, k) "
    "select k, euclideanDistanceToClosestCentroid as a insert into O;",
    "gathered clusters": "#streamingml:kMeansMiniBatch(2, 5, 3, v, k) "
    "select k, euclideanDistanceToClosestCentroid as a insert into O;",
    "series": "#timeseries:regress(v, k) select k, beta1 as a insert into O;",
    "estimate": " select k, kf:kalmanFilter(v) as a insert into O;",
    "estimate of a rate": " select k, kf:kalmanFilter(v, v, 0.5, convert(k, 'long')) as a "
    "insert into O;",
}


@pytest.mark.parametrize("name", COMPUTED)
def test_a_value_beyond_all_bounds_fails_its_event_and_no_other(name: str) -> None:
    beyond = [math.nan, math.inf, -math.inf, 1e308, -1e308, 1e200]
    values = [1.0, 2.0, *beyond, 3.5, *[1e308] * 9, 4.0, 1.0, 2.0, 7.0]
    events: list[tuple[int, list[Any]]] = [
        (START_MS + at, [at % 7, v, str(at % 2 > 0)]) for at, v in enumerate(values)
    ]
    is_asked = "from S#" in COMPUTED[name]
    fine = {time_ms for time_ms, (_, v, _) in events if abs(v) < 10}
    rows = [row for row in at_once(f"from S{COMPUTED[name]}", {"S": events}) if row[2] in fine]
    without: Log = {"S": [one for one in events if one[0] in fine]}
    assert len(rows) == len(fine)
    assert [row[3] for row in rows] == [
        row[3] for row in at_once(f"from S{COMPUTED[name]}", without)
    ]
    assert is_asked or len(at_once(f"from S{COMPUTED[name]}", {"S": events})) == len(fine)


def test_a_model_learns_nothing_from_events_after_a_failed_one_of_their_chunk() -> None:
    recorder = Recorder(
        "from S#streamingml:updateHoeffdingTree('m', 1, v, s) select accuracy as a insert into O;"
    )
    log: Log = {"S": [(START_MS + at // 3, [at, 0.0, s]) for at, s in enumerate("axaaa")]}
    sent = recorder.part(log, "S", 0, 5)
    recorder.run([replace(sent, chunk=np.array([1, 1, 1, 2, 3]))], {"S": END_MS})
    # The first "a" trains, and is dropped with its chunk.
    assert [literal_eval(row) for *_, row in recorder.rows] == [[1 / 2], [2 / 3]]


@pytest.mark.parametrize("name", COMPUTED)
def test_large_values_end_no_query(name: str) -> None:
    values = [1.0, 2.0, 1e100, -1e100, *[1e100] * 9, 5e-324, -0.0, 4.0, 1.0, 2.0, 7.0]
    log: Log = {"S": [(START_MS + at, [at % 7, v, str(at % 2 > 0)]) for at, v in enumerate(values)]}
    assert len(at_once(f"from S{COMPUTED[name]}", log)) > 10


def test_many_values_are_counted_within_the_error() -> None:
    # Each of 3,000 values four times; the first thousand of events is not in the window any more.
    log: Log = {"S": [(START_MS + at, [at % 3000, 0.0, f"s{at % 3000}"]) for at in range(12_000)]}
    (*_, last) = at_once(
        "from S#window.length(2000)#approximate:distinctCount(s) select distinctCount as n "
        "insert into O;",
        log,
    )
    assert abs(literal_eval(last[3])[0] - 2000) <= 20
    rows = at_once(
        "from S#approximate:count(k)#approximate:distinctCountEver(k) select count as a, "
        "countLowerBound as b, distinctCountEver as c insert into O;",
        log,
    )
    count, low, distinct = literal_eval(rows[-1][3])
    assert low <= 4 <= count <= 4 + 120
    assert abs(distinct - 3000) <= 30


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("from S#approximate:count(k, 1.0) select count insert into O;", "between 0 and 1"),
        ("from S#approximate:count(k, 0.00001) select count insert into O;", "numbers"),
        ("from S#timeseries:regress(1, 200000, 0.9, v, k) select k insert into O;", "events"),
        ("from S#extrema:topK(k, 0) select k insert into O;", "1 to 100"),
        ("from S#approximate:distinctCount(k, 0.0001) select distinctCount insert into O;", "num"),
    ],
)
def test_a_call_that_needs_too_much_memory_is_refused(query: str, what: str) -> None:
    with pytest.raises(MeshError) as refusal:
        bind(parse(DEFINE + query))
    assert what in refusal.value.message


@pytest.mark.parametrize(
    "query",
    [
        """from S#streamingml:updateBayesianRegression('m', v, k)#window.time(9) as a
        join T#window.time(9) as b on a.k == b.k select a.k insert into O;""",
        """define aggregation A from S#unique:deduplicate(k, 9) select max(k) as m
        aggregate every sec;""",
        """define aggregation A from S#streamingml:updateBayesianRegression('m', v, k)
        select max(loss) as m aggregate every sec;""",
    ],
)
def test_where_one_cannot_stand_is_said(query: str) -> None:
    with pytest.raises(MeshError, match=r"stream function \S+ in an? "):
        check_supported(bind(parse(DEFINE + query)))
