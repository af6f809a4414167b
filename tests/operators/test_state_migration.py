"""Edits of a group's text: unchanged parts continue as if nothing had happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.language.parser import parse
from mesh.operators.executor import Executor
from mesh.operators.state_migration import remap
from mesh.plan.bind import bind
from tests.support.examples import examples
from tests.support.kept_states import INSIDE, kept_inside
from tests.support.recorder import DEFINE, END_MS, EVENT, Log, Recorder, log_of, stored

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Each writes a stream of its own, so that its rows are known by it.
QUERIES = (
    "from S#window.length(3) select k, sum(k) as t group by s insert all events into {0};",
    "from S#window.time(20) select k, count() as c insert all events into {0};",
    "from S[v > 0] select k, v insert into {0};",
    (
        "from every e1=S[v > 0] -> e2=T[k == e1.k] within 40 milliseconds "
        "select e1.k, e2.v insert into {0};"
    ),
    "from every not T[v > 0] for 15 milliseconds select 'none' as none insert into {0};",
    "from S#window.timeBatch(15) select s, count() as c group by s insert into {0};",
    (
        "from S#window.length(2) as a join T#window.time(25) as b on a.k == b.k "
        "select a.k, b.v insert into {0};"
    ),
    "from T select k, count() as c output last every 10 milliseconds insert into {0};",
    "from S select distinctCount(k) as c output every 3 events insert into {0};",
    (
        "from S[k > 0] select k, v insert into M{0}; "
        "from M{0}#window.time(10) select k, sum(v) as t insert into {0};"
    ),
)
#: Both streams are inputs whatever else is read.
ALWAYS = "from S select k insert into Fixed; from T select k insert into Fixed;"


def text_of(chosen: Sequence[int], inside: Sequence[Sequence[int]]) -> str:
    """An app of some of the queries, in this order."""
    text = DEFINE + ALWAYS
    text += " ".join(QUERIES[n].format(f"O{n}") for n in chosen)
    for partition in inside:
        queries = " ".join(INSIDE[n].format(f"P{n}") for n in partition)
        text += f" partition with (k of S) begin {queries} end;"
    return text


class Group(Recorder):
    """A recorder of a group that continues with another text."""

    def __init__(self, text: str) -> None:
        self.become(text)
        self.executor = Executor(self.app, self.outputs)
        self.rows = []

    def become(self, text: str) -> None:
        self.app = bind(parse(text))
        self.inputs = ("S", "T")
        names = {q.target.name for q in self.app.queries}
        names |= {q.target.name for p in self.app.partitions for q in p.queries}
        self.outputs = tuple(sorted(name for name in names if name[0] in "OPF"))

    def edit(self, text: str, *, keeps: bool = True) -> None:
        before, state = self.app, stored(self.executor.snapshot())
        self.become(text)
        self.executor = Executor(self.app, self.outputs)
        made = remap(state, before, self.app, keeps=keeps)
        self.executor.restore(stored(made))

    def of(self, stream: str) -> list[Any]:
        rows = sorted(self.rows, key=lambda row: row[0])
        return [(time_ms, values) for _, name, time_ms, values in rows if name == stream]


def feed(group: Group, log: Log, ends: dict[str, int], starts: dict[str, int]) -> None:
    """The events of a stretch of the log; time passes up to its last ones."""
    runs = [group.part(log, s, starts[s], ends[s]) for s in ends if ends[s] > starts[s]]
    clocks = {s: max((t for t, _ in log[s][: ends[s]]), default=999) for s in ends}
    group.run(runs, clocks)


def end(group: Group) -> None:
    group.run([], dict.fromkeys(("S", "T"), END_MS))


_SOME = st.lists(st.sampled_from(range(len(QUERIES))), unique=True, max_size=5)
_INNER = st.lists(st.sampled_from(range(len(INSIDE))), unique=True)


@st.composite
def _partitions(draw: st.DrawFn) -> list[list[int]]:
    """Some of the queries, in up to two partitions."""
    chosen = draw(_INNER)
    at = draw(st.integers(0, len(chosen)))
    return [part for part in (chosen[:at], chosen[at:]) if part]


@pytest.mark.thorough
@settings(max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_stays_the_same_goes_on_as_if_nothing_had_happened(data: st.DataObject) -> None:
    old = data.draw(_SOME, label="old"), data.draw(_partitions())
    new = data.draw(_SOME, label="new"), data.draw(_partitions())
    log = log_of(data.draw(st.lists(EVENT, min_size=1, max_size=40)), ("S", "T"))
    cut = {s: data.draw(st.integers(0, len(log[s])), label=s) for s in log}
    whole = {s: len(log[s]) for s in log}

    group = Group(text_of(*old))
    feed(group, log, cut, dict.fromkeys(log, 0))
    given_before = group.executor.outputs_count
    group.edit(text_of(*new))
    assert group.executor.outputs_count == given_before
    feed(group, log, whole, cut)
    end(group)
    positions = sorted(row[0] for row in group.rows)
    assert positions == list(range(1, len(positions) + 1))

    inside = kept_inside(text_of(*old), text_of(*new))
    if len(old[1]) == len(new[1]) == 1:
        assert inside == {f"P{n}" for n in old[1][0] if n in new[1][0]}
    alone = Group(text_of(range(len(QUERIES)), [range(len(INSIDE))]))
    feed(alone, log, cut, dict.fromkeys(log, 0))
    feed(alone, log, whole, cut)
    end(alone)
    for stream in ["Fixed", *(f"O{n}" for n in old[0] if n in new[0]), *inside]:
        assert group.of(stream) == alone.of(stream), stream


def run(group: Group, stream: str, *events: tuple[int, list[Any]]) -> None:
    """Events at their times; both streams are known up to the last one."""
    log: Log = {"S": [], "T": []} | {stream: list(events)}
    group.run([group.part(log, stream, 0, len(events))], dict.fromkeys("ST", events[-1][0] + 1))


SUM = "from S select sum(k) as t insert into {0};"
TABLE = "define table Seen (k int); from S select k insert into Seen; "
LOOK = "from T[Seen.k == k in Seen] select k insert into {0};"


def test_of_a_group_that_is_reset_only_positions_go_on() -> None:
    group = Group(DEFINE + SUM.format("O"))
    run(group, "S", (1000, [2, None, None]), (1001, [3, None, None]))
    group.edit(DEFINE + SUM.format("O"), keeps=False)
    run(group, "S", (1010, [4, None, None]))
    assert [(position, values) for position, _, _, values in group.rows] == [
        (1, "[2]"), (2, "[5]"), (3, "[4]"),
    ]  # fmt: skip


def test_a_table_keeps_its_rows_when_the_queries_around_it_change() -> None:
    group = Group(DEFINE + TABLE + LOOK.format("O"))
    run(group, "S", (1000, [7, None, None]))
    group.edit(DEFINE + TABLE + SUM.format("P") + LOOK.format("O2"))
    run(group, "T", (1010, [7, None]), (1011, [8, None]))
    assert group.of("O2") == [(1010, "[7]")]


def test_a_query_goes_on_when_it_no_longer_feeds_itself() -> None:
    """In a circle of queries causes are counted separately."""
    count = "from {0}#window.length(9) select k, count() as c insert into A; "
    out = "from A select k, c insert into O; "
    back = "define stream A (k int, c long); from A[k < 3] select k + 1 as k, 0.0 as v insert into "
    group = Group(DEFINE + back + "T; " + count.format("T") + out)
    assert "ring-query0/query1" in group.executor.places.values()
    run(group, "T", (1000, [1, None]))
    group.edit(DEFINE + back + "B; " + out + count.format("T"))
    assert not any("/" in place for place in group.executor.places.values())
    run(group, "T", (1010, [1, None]))
    group.edit(DEFINE + back + "T; " + count.format("T") + out)
    run(group, "T", (1020, [2, None]))
    found = ["[1, 1]", "[2, 2]", "[3, 3]", "[1, 4]", "[2, 5]", "[3, 6]"]
    # An event that returns is counted before the event that caused it is passed on.
    assert sorted(values for _, values in group.of("O")) == sorted(found)


def test_what_waits_for_another_stream_gets_the_attributes_that_the_stream_has_now() -> None:
    both = "from S select k, v insert into O; from T select k, v insert into O;"
    group = Group(DEFINE + both)
    group.run([group.part({"S": [(1000, [1, 2.5, "a"])]}, "S", 0, 1)], {"S": 1000, "T": 900})
    other = "define stream S (v double, k long, more string); define stream T (k int, v double); "
    group.edit(other + both.replace("select k, v", "select k, v, more", 1).replace("O", "P", 1))
    group.run([], {"S": 1001, "T": 1001})
    assert group.of("P") == [(1000, "[1, 2.5, None]")]
