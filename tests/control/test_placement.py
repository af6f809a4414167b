"""Invariants of placement, for any instances and workers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from mesh.control.placement import Admits, Candidate, Need, Placement, place
from mesh.model import names
from tests.support.cluster_lines import need
from tools.simulator.seating import most_placeable

WORKERS = ("w1", "w2", "w3", "w4")
NEEDS = tuple(need(names.instance_name("A", group, i)) for group in "gh" for i in range(1, 5))
LABELS = ("gpu", "big")


@dataclass(frozen=True)
class Case:
    needs: tuple[Need, ...]
    current: dict[str, str]
    hosts: list[Candidate]

    def place(self) -> Placement:
        return place(self.needs, self.current, self.hosts)

    @property
    def open(self) -> list[str]:
        return [host.name for host in self.hosts if host.admits is Admits.OPEN]


@st.composite
def plain(draw: st.DrawFn) -> Case:
    """Workers that accept any instance and any number, some of them gone or closed."""
    needs = NEEDS[: draw(st.integers(0, len(NEEDS)))]
    current = {n.instance: draw(st.sampled_from(WORKERS)) for n in needs if draw(st.booleans())}
    found = [
        Candidate(name, draw(st.sampled_from((Admits.OPEN, Admits.OPEN, Admits.CLOSED))))
        for name in sorted(draw(st.sets(st.sampled_from(WORKERS))))
    ]
    return Case(needs, current, found)


@st.composite
def choosy(draw: st.DrawFn) -> Case:
    """Workers with labels and capacities, needs that require labels."""
    needs = tuple(
        replace(one, labels=draw(st.frozensets(st.sampled_from(LABELS), max_size=1)))
        for one in NEEDS[: draw(st.integers(0, len(NEEDS)))]
    )
    current = {n.instance: draw(st.sampled_from(WORKERS)) for n in needs if draw(st.booleans())}
    found = [
        Candidate(
            name,
            draw(st.sampled_from((Admits.OPEN, Admits.OPEN, Admits.CLOSED, Admits.EMPTYING))),
            capacity=draw(st.integers(0, 3)),
            labels=draw(st.frozensets(st.sampled_from(LABELS))),
        )
        for name in sorted(draw(st.sets(st.sampled_from(WORKERS))))
    ]
    return Case(needs, current, found)


@given(plain())
def test_everything_is_placed_and_nothing_on_who_is_gone(case: Case) -> None:
    where = case.place().where
    assert set(where.values()) <= {host.name for host in case.hosts}
    if case.open:
        assert set(where) == {n.instance for n in case.needs}


@given(plain())
def test_counts_of_open_workers_differ_by_one_at_most(case: Case) -> None:
    counts = Counter(case.place().where.values())
    loads = [counts[worker] for worker in case.open]
    assert not loads or max(loads) - min(loads) <= 1


@given(plain() | choosy())
def test_placing_again_moves_nothing(case: Case) -> None:
    where = case.place().where
    assert place(case.needs, where, case.hosts).where == where


@given(plain())
def test_only_what_exceeds_an_even_share_is_moved_off_a_worker_that_is_there(case: Case) -> None:
    where = case.place().where
    there = {host.name for host in case.hosts}
    moved = Counter(w for i, w in case.current.items() if w in there and where[i] != w)
    had, kept = Counter(case.current.values()), Counter(where.values())
    for worker, count in moved.items():
        assert worker in case.open
        assert count == had[worker] - kept[worker]


@given(choosy())
def test_labels_and_capacities_are_kept_to(case: Case) -> None:
    found = case.place()
    by_name = {host.name: host for host in case.hosts}
    for one in case.needs:
        if one.instance in found.where:
            assert one.fits(by_name[found.where[one.instance]])
    settled = Counter(w for i, w in found.where.items() if i not in found.stuck)
    for host in case.hosts:
        assert not host.capacity or settled[host.name] <= host.capacity


@given(choosy())
def test_what_fits_somewhere_is_placed_and_what_is_not_says_why(case: Case) -> None:
    found = case.place()
    closed = {h.name for h in case.hosts if h.admits is Admits.CLOSED}
    kept = {i for i, worker in found.where.items() if worker in closed}
    # An instance that stays on a closed worker uses no seat of an open one.
    placed = len(found.where) - len(kept) - len(found.stuck)
    needs = [n for n in case.needs if n.instance not in kept]
    assert placed == most_placeable(needs, [h for h in case.hosts if h.admits is Admits.OPEN])
    assert {n.instance for n in case.needs} == found.where.keys() | found.waiting.keys()
    for waiting in (*found.waiting.values(), *found.stuck.values()):
        assert waiting.reason
        assert waiting.cure
