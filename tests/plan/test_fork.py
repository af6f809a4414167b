"""Plans of forks: which channels they read, which are their own, and which groups they lack."""

from __future__ import annotations

import pytest

from mesh.errors import MeshError
from mesh.manager.planning import view_of
from mesh.model.app import AppSpec, GroupKind
from mesh.plan.build import plan
from mesh.plan.fork import (
    StateFit,
    fork_app,
    promoted_text,
    promotion_states,
    read_by_others,
    state_fit,
)

KEYED = """@App:name('A')
define stream S (k string, v int);
@dist(execGroup='sums', parallel='2') partition with (k of S) begin
from S#window.length(3) select k, sum(v) as t insert into Sums;
end;
@dist(execGroup='big') from Sums[t > 5] select k, t insert into Big;
"""
CONNECTORS = """@App:name('A')
@source(type='http', receiver.url='http://127.0.0.1:8280/s', @map(type='json'))
define stream S (k string);
@sink(type='http', publisher.url='http://127.0.0.1:8281/t', @map(type='json'))
define stream T (k string);
define trigger Tick at every 1 sec;
@dist(execGroup='one') from S select k insert into T;
@dist(execGroup='two') from Tick select triggered_time as due insert into Ticks;
"""


def fork(of: AppSpec, text: str | None = None, **more: bool) -> AppSpec:
    wanted = {"copies": False, "sinks": False, **more}
    return fork_app(of, text, "B", copies=wanted["copies"], sinks=wanted["sinks"], scaled={})


def reads(spec: AppSpec) -> dict[str, list[str]]:
    return {g.name: [i.channel.js_stream() for i in g.inputs] for g in spec.groups}


def test_a_fork_divides_the_apps_plain_channel_by_key_itself() -> None:
    made = fork(plan(KEYED).spec)
    assert reads(made) == {
        "partition-S-k": ["mesh-A-S"],
        "sums": ["mesh-B-S-by-k-0"],
        "big": ["mesh-B-Sums"],
    }
    assert [c.js_stream() for c in made.channels] == [
        "mesh-B-S-by-k-0",
        "mesh-B-Sums",
        "mesh-B-Big",
    ]
    assert all(group.app == "B" for group in made.groups)


def test_with_state_it_reads_the_apps_keyed_copies() -> None:
    made = fork(plan(KEYED).spec, copies=True)
    assert reads(made) == {"sums": ["mesh-A-S-by-k-0"], "big": ["mesh-B-Sums"]}
    assert [c.js_stream() for c in made.channels] == ["mesh-B-Sums", "mesh-B-Big"]


def test_sources_triggers_and_sinks_are_the_apps() -> None:
    of = plan(CONNECTORS).spec
    made = fork(of)
    assert reads(made) == {"one": ["mesh-A-S"], "two": ["mesh-A-Tick"]}
    kinds = {group.kind for group in fork(of, sinks=True).groups}
    assert kinds == {GroupKind.QUERIES, GroupKind.SINK}


def test_a_stream_that_the_app_lacks_is_the_forks_own() -> None:
    text = KEYED.replace("define stream S", "define stream R (k string);\ndefine stream S")
    text += "@dist(execGroup='more') from R select k insert into More;\n"
    made = fork(plan(KEYED).spec, text)
    assert reads(made)["more"] == ["mesh-B-R"]
    with pytest.raises(MeshError, match="is not that of app"):
        fork(plan(KEYED).spec, KEYED.replace("v int", "v long"))


def fit(text: str, after: str) -> StateFit:
    of = plan(text).spec
    base = fork(of, copies=True)
    return state_fit(of, base, fork(of, after, copies=True), 1)


def test_a_state_fits_if_no_changed_group_is_before_it() -> None:
    assert fit(KEYED, KEYED).changed == frozenset()
    last = fit(KEYED, KEYED.replace("t > 5", "t > 7"))
    assert last.spec is not None
    assert last.changed == {"big"}
    other = fit(KEYED, KEYED.replace("length(3)", "length(4)"))
    assert other.spec is None
    assert "lose state" in other.reason


def test_a_promotion_needs_the_same_states() -> None:
    of = plan(KEYED).spec
    assert promotion_states(of, plan(KEYED.replace("t > 5", "t > 7")).spec) == ([], [])
    other = plan(KEYED.replace("S#window", "S[v > 0]#window")).spec
    assert promotion_states(of, other) == (["sums"], [])
    assert promoted_text(KEYED, "A") == KEYED
    assert plan(promoted_text(KEYED, "C")).spec.name == "C"


def test_a_fork_of_a_fork_reads_the_input_of_the_first_app() -> None:
    of = plan(KEYED).spec
    for first in (fork(of), fork(of, copies=True)):
        second = fork_app(first, None, "C", copies=False, sinks=False, scaled={})
        assert {s.split("-")[1] for s in reads(second)["sums"]} <= {"A", "C"}
        assert set(read_by_others([of, second], "A").values()) == {"C"}
    # Whatever shows a plan shows that of a fork.
    for form in ("json", "elements", "svg", "drawing", "dot"):
        assert view_of(fork(of), form)
