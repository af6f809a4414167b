"""On-demand changes of tables have one place among the events, however the input is cut.

Tables and windows of a stored state answer as those of the executor that stored it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.language.parser import parse, parse_on_demand_query
from mesh.operators.base import subset
from mesh.operators.dataflow.merge import CHANGE_SCHEMA, CHANGES
from mesh.operators.executor import Executor, InputRun
from mesh.operators.on_demand import OUTCOMES_MAX, answer, stores_of
from mesh.operators.state_migration import remap
from mesh.plan.bind import bind
from mesh.plan.bind.on_demand import bind_on_demand
from mesh.plan.bound import AnswerOutput
from mesh.plan.build import plan
from mesh.testing.conformance import direct
from tests.support.examples import examples
from tests.support.paths import CASES
from tests.support.recorder import stored
from tools import engine_answers
from tools.cases import batch, values

if TYPE_CHECKING:
    from mesh.plan.bound import BoundApp, BoundOnDemandQuery


ONE = """
define stream S (k string, v int);
@PrimaryKey('k') define table T (k string, v int);
from S#window.time(5 millisec) select k, v insert expired events into Old;
from Old select k, v update T set T.v = v on T.k == k;
from S join T on S.k == T.k select S.k as k, T.v as v insert into O;
"""
TWO = f"{ONE} define stream R (k string); from R delete T on T.k == k;".replace(
    "define stream R (k string);", ""
).replace("define stream S", "define stream R (k string); define stream S", 1)
QUERIES = [
    "select 'a' as k, 1 as v insert into T",
    "select 'b' as k, 2 as v insert into T",
    "update T set T.v = T.v + 10 on T.v < 100",
    "select 'a' as k, 7 as v update or insert into T set T.v = v on T.k == k",
    "delete T on T.k == 'b'",
    "from T select k, v on",
    "delete Missing on true",
]


def _change(id_: str, query: str, refusal: str | None = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"id": id_, "query": query, "refusal": refusal}], CHANGE_SCHEMA
    )


class Play:
    """An executor that gets the messages of a log, cut anywhere."""

    def __init__(self, text: str) -> None:
        self.app = bind(parse(text))
        self.executor = Executor(self.app, ["O"])
        read = [one for one in self.executor.input_schemas if one in ("S", "R")]
        self.clocks = dict.fromkeys(read, 0)
        self.found: list[Any] = []

    def take(self, sequence: int, message: tuple[str, int, Any]) -> None:
        stream, time_ms, value = message
        if stream == CHANGES:
            rows = _change(str(sequence), value)
            # It is beside the events of S.
            stream_clock = "S"
        else:
            rows = batch(self.app.stream(stream), [value])
            stream_clock = stream
        self.clocks[stream_clock] = time_ms
        self.run([InputRun(stream, np.array([sequence]), np.array([time_ms]), rows)])

    def run(self, runs: list[InputRun]) -> None:
        for run in self.executor.run(runs, self.clocks):
            self.found += zip(run.position.tolist(), values(run.rows), strict=True)

    def pass_time(self, time_ms: int) -> None:
        self.clocks = dict.fromkeys(self.clocks, time_ms)
        self.run([])

    def restart(self) -> None:
        state = stored(self.executor.snapshot())
        self.executor = Executor(self.app, ["O"])
        self.executor.restore(state)

    def table(self) -> Any:
        query = bind_on_demand(parse_on_demand_query("from T"), self.app)
        return sorted(map(str, self.executor.ask(query, 0).to_pylist()))


_EVENTS = st.one_of(
    st.tuples(st.just(CHANGES), st.integers(0, 3), st.sampled_from(QUERIES)),
    st.tuples(
        st.just("S"), st.integers(0, 3), st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 9))
    ),
    st.tuples(st.just("R"), st.integers(0, 3), st.tuples(st.sampled_from(["a", "b"]))),
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", [ONE, TWO], ids=["one stream", "two streams"])
@settings(max_examples=examples(40), deadline=None)
@given(steps=st.lists(_EVENTS, max_size=20), data=st.data())
def test_a_change_has_its_place_however_the_input_is_cut(
    text: str, steps: list[tuple[str, int, Any]], data: Any
) -> None:
    log, now_ms = [], 1000
    for stream, after_ms, value in steps:
        if stream != "R" or text is TWO:
            now_ms += after_ms
            log.append((stream, now_ms, value))
    calm, cut = Play(text), Play(text)
    for sequence, message in enumerate(log, start=1):
        calm.take(sequence, message)
        cut.take(sequence, message)
        if data.draw(st.booleans()):
            # The broker's time has reached no more than the next message's.
            later = log[sequence][1] if sequence < len(log) else message[1] + 3
            cut.pass_time(data.draw(st.integers(message[1], later)))
        if data.draw(st.booleans()):
            cut.restart()
    for play in (calm, cut):
        play.pass_time(now_ms + 100)
    assert cut.found == calm.found
    assert cut.table() == calm.table()
    assert _outcomes(cut) == _outcomes(calm)


def _outcomes(play: Play) -> dict[str, Any]:
    own: Any = subset(stored(play.executor.snapshot()), "own").scalars
    found: dict[str, Any] = own.get("changes", {})
    return found


def test_outcomes_are_remembered_and_nothing_is_made_twice() -> None:
    play = Play(ONE)
    for sequence, query in enumerate(QUERIES, start=1):
        play.take(sequence, (CHANGES, 1000, query))
    found = _outcomes(play)
    made = [found[str(n)].get("changed") for n in range(1, 6)]
    assert made == [1, 1, 2, 1, 1]
    assert [found[n]["error"]["code"] for n in ("6", "7")] == ["MESH-L104", "MESH-L217"]
    again = _change("4", "delete T on true")
    play.run([InputRun(CHANGES, np.array([9]), np.array([1000]), again)])
    assert play.table() == ["{'k': 'a', 'v': 7}"]
    refused = _change("r", QUERIES[0], "it is early")
    play.run([InputRun(CHANGES, np.array([10]), np.array([1000]), refused)])
    assert _outcomes(play)["r"]["error"]["code"] == "MESH-O111"
    for sequence in range(11, 20 + OUTCOMES_MAX):
        play.take(sequence, (CHANGES, 1000, QUERIES[4]))
    assert len(_outcomes(play)) == OUTCOMES_MAX


def test_a_waiting_change_survives_an_edit() -> None:
    play = Play(TWO)
    play.take(1, ("S", 1000, ("a", 1)))
    play.take(2, ("R", 1000, ("x",)))
    play.take(3, (CHANGES, 1005, QUERIES[0]))
    assert play.table() == []
    after = bind(parse(TWO.replace("5 millisec", "6 millisec")))
    state = remap(stored(play.executor.snapshot()), play.app, after)
    play.executor = Executor(after, ["O"])
    play.executor.restore(stored(state))
    play.pass_time(2000)
    assert play.table() == ["{'k': 'a', 'v': 1}"]


def test_a_table_that_no_query_uses_is_changed_and_restored() -> None:
    definitions = "@App:name('A') define stream S (k string, v int); define table T (k string);"
    (group,) = plan(f"{definitions} from S select k, v insert into O;").spec.groups
    play = Play(group.text)
    play.take(1, (CHANGES, 1, "select 'a' as k insert into T"))
    play.take(2, ("S", 2, ("b", 1)))
    play.restart()
    assert play.table() == ["{'k': 'a'}"]
    assert [list(row) for _, row in play.found] == [["b", 1]]


READS = [
    one
    for one in engine_answers.load(CASES / "conformance")
    if one.category == "on_demand" and one.case["name"].startswith(("read", "window", "in", "res"))
]


class Twice(Executor):
    """Answers on-demand queries from its stored state as well, and compares."""

    def __init__(self, app: BoundApp, *given: Any, **more: Any) -> None:
        super().__init__(app, *given, **more)
        self.app = app

    def ask(self, query: BoundOnDemandQuery, now_ms: int) -> pa.RecordBatch:
        found = super().ask(query, now_ms)
        if isinstance(query.action, AnswerOutput):
            state = direct._through_text(self.snapshot())
            stores = stores_of(self.app, state, self.places, query.reads)
            again = answer(query, stores, now_ms)
            assert again.schema == found.schema
            assert again.to_pylist() == found.to_pylist()
        return found


@pytest.mark.slow
def test_they_answer_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "Executor", Twice)
    asked = [one for one in READS if "UUID" not in one.case["name"]]
    assert len(asked) > 100
    for one in asked:
        assert direct.answer(one.case)["status"] == "ok", one.name
