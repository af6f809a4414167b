"""Edits of a running app: the new desired state, and refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from mesh.model.cluster import Retired
from mesh.plan.build import plan
from mesh.plan.changes import GroupFate
from mesh.plan.edits import Edit, edit_app, still_retired

if TYPE_CHECKING:
    from mesh.model.app import AppSpec

HEAD = "@App:name('A') define stream S (k string, a int); "
ONE = "@dist(execGroup='g') from S#window.length(2) select a, count() as n insert into T; "
TWO = "@dist(execGroup='h') from S select a insert into U; "


def spec(text: str) -> AppSpec:
    return plan(HEAD + text).spec


def edit(old: str, new: str, *reset: str) -> Edit:
    return edit_app(spec(old), spec(new), 1, reset)


def refused(old: str, new: str, *reset: str) -> MeshError:
    with pytest.raises(MeshError) as caught:
        edit(old, new, *reset)
    return caught.value


def test_a_state_is_given_up_by_name_only() -> None:
    longer = ONE.replace("length(2)", "length(3)")
    error = refused(ONE + TWO, longer + TWO)
    assert error.code == "MESH-C120"
    assert error.message == 'app "A" would lose state in group g'
    assert error.detail == "group g: query query-1, for it changed."
    assert "--reset g" in (error.hint or "")
    made = edit(ONE + TWO, longer + TWO, "g")
    assert [g.resets for g in made.spec.groups] == [1, 0]
    assert refused(ONE, ONE, "nobody").code == "MESH-C122"


def test_a_group_may_be_reset_that_does_not_change() -> None:
    made = edit(ONE + TWO, ONE + TWO, "g")
    assert made.changes.fate("g") is GroupFate.RESTARTED
    assert made.changes.fate("h") is GroupFate.SAME
    (group, other) = made.spec.groups
    assert (group.resets, group.text) == (1, spec(ONE + TWO).groups[0].text)
    assert other == spec(ONE + TWO).groups[1]


def test_what_is_put_out_is_counted_anew_where_nobody_counts_it() -> None:
    more = "@dist(execGroup='{}') from S[a > 1] select a insert into V; "
    (state, plain) = edit(ONE + TWO, ONE + more.format("g") + TWO).spec.groups
    assert (state.edit, plain.edit) == (0, 0)
    (state, plain) = edit(ONE + TWO, ONE + TWO + more.format("h")).spec.groups
    assert (state.edit, plain.edit) == (0, 1)
    # A group that begins to keep state, or ends.
    assert edit(TWO, TWO.replace("S select", "S#window.length(1) select")).spec.groups[0].edit == 1


def test_a_group_begins_behind_what_a_stream_holds_that_is_there() -> None:
    new = "@dist(execGroup='i') from S select a insert into M; from M select a insert into V; "
    made = edit(ONE, ONE + new)
    assert made.joins == {"i": ("mesh-A-S",)}
    begun = made.begun({"mesh-A-S": 7})
    assert [dict(g.starts) for g in begun.groups] == [{}, {"mesh-A-S": 7}, {}]
    # It stays so when the group changes once more.
    changed = spec(ONE + new.replace("select a insert into M", "select a + 1 as a insert into M"))
    assert dict(edit_app(begun, changed, 2).spec.groups[1].starts) == {"mesh-A-S": 7}


def test_events_on_their_way_are_not_given_up() -> None:
    wired = TWO + "@dist(execGroup='i') from U select a insert into V; "
    error = refused(wired, wired.replace("'i'", "'h'"))
    assert error.code == "MESH-C121"
    assert error.detail is not None
    assert "stream U no longer goes over the wire" in error.detail
    counts = "@dist(execGroup='g'{}) from S select k, count() as n group by k insert into T; "
    error = refused(counts.format(""), counts.format(", parallel='2'"), "g")
    assert error.code == "MESH-C121"
    assert "by (k) in 8 partitions rather than not at all" in (error.detail or "")
    error = refused(ONE + TWO, ONE.replace("'g'", "'h'") + TWO, "h")
    assert 'the query into "T" moves from g to h' in (error.detail or "")
    # A partitioner must not end before it has copied its events.
    makes = "@dist(execGroup='f') from S select k, a insert into M; "
    reads = (
        "@dist(execGroup='g', parallel='2') from M select k, sum(a) as n group by k insert into T; "
    )
    whole = "@dist(execGroup='h') from M#window.length(2) select a insert into U; "
    error = refused(makes + reads + whole, makes + reads)
    assert "group partition-M-k may stop before it has copied all events" in (error.detail or "")


def test_what_comes_back_is_not_removed() -> None:
    made = edit(ONE + TWO, ONE)
    assert made.retired.groups == ("h",)
    assert [c.stream.name for c in made.retired.channels] == ["U"]
    again = edit_app(made.spec, spec(ONE + TWO), 2)
    assert still_retired(made.retired, again.retired, again.spec) is None
    less = edit_app(made.spec, spec(ONE), 2)
    assert still_retired(made.retired, less.retired, less.spec) == made.retired
    assert still_retired(None, Retired(), made.spec) is None
