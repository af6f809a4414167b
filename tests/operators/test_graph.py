"""Orders and stages of the nodes of a group, for any graph."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mesh.operators.dataflow.graph import (
    DataflowNode,
    StateAccess,
    Topology,
    feeds_back_into,
    readers,
    stages_of,
    topological_order,
)


def node(name: str, reads: str, writes: str, *accesses: StateAccess) -> DataflowNode:
    """A node; each letter is a channel."""
    return DataflowNode(name, tuple(reads), tuple(writes), lambda _: None, accesses=accesses)  # type: ignore[arg-type,return-value]  # it does no work


def nodes(draws: list[tuple[str, str, bool | None]]) -> list[DataflowNode]:
    """Nodes without a cycle, which may write or read a table."""
    found = []
    for number, (reads, writes, changes) in enumerate(draws):
        later = "".join(c for c in writes if c > max(reads, default=""))
        accesses = () if changes is None else (StateAccess("T", f"n{number}", changes),)
        found.append(node(f"n{number}", "".join(sorted(set(reads))), later, *accesses))
    return found


GRAPHS = st.lists(
    st.tuples(
        st.text("abcdef", min_size=1, max_size=3),
        st.text("abcdefgh", max_size=3),
        st.sampled_from([None, None, False, True]),
    ),
    max_size=7,
).map(nodes)


@given(GRAPHS)
def test_each_node_is_after_those_that_feed_it(graph: list[DataflowNode]) -> None:
    order = topological_order(graph)
    assert order is not None
    assert sorted(order) == list(range(len(graph)))
    place = {number: at for at, number in enumerate(order)}
    for number, one in enumerate(graph):
        for channel in one.writes:
            for reader in readers(graph).get(channel, ()):
                assert place[number] < place[reader]


def test_a_cycle_has_no_order_and_a_loop_of_one_node_may_have() -> None:
    assert topological_order([node("x", "a", "b"), node("y", "b", "a")]) is None
    loop = [node("x", "a", "ab"), node("y", "b", "c")]
    assert topological_order(loop) is None
    assert topological_order(loop, loops=True) == [0, 1]


@given(GRAPHS)
def test_stages_keep_together_what_shares_state_and_follow_what_leads_to_them(
    graph: list[DataflowNode],
) -> None:
    order = topological_order(graph)
    assert order is not None
    stages = stages_of(graph, order)
    assert sorted(number for stage in stages for number in stage) == sorted(order)
    at = {number: place for place, stage in enumerate(stages) for number in stage}
    place = {number: n for n, number in enumerate(order)}
    for stage in stages:
        assert all(place[one] < place[other] for one, other in pairwise(stage))
    for number, one in enumerate(graph):
        for channel in one.writes:
            assert all(at[number] <= at[reader] for reader in readers(graph).get(channel, ()))
        for other, beside in enumerate(graph):
            if number != other and any(
                a.conflicts_with(b) for a in one.accesses for b in beside.accesses
            ):
                assert at[number] == at[other]


def test_what_stands_between_two_nodes_of_a_stage_is_in_it() -> None:
    writes, reads = StateAccess("T", "x", True), StateAccess("T", "z", False)
    graph = [
        node("x", "a", "b", writes), node("y", "b", "c"), node("z", "c", "d", reads),
        node("u", "d", ""), node("v", "a", ""),
    ]  # fmt: skip
    order = topological_order(graph)
    assert order is not None
    assert {frozenset(stage) for stage in stages_of(graph, order)} == {
        frozenset({0, 1, 2}), frozenset({3}), frozenset({4}),
    }  # fmt: skip
    assert feeds_back_into(graph, 0)
    assert not feeds_back_into(graph, 2)


def test_the_next_reader_has_an_event_after_all_that_the_first_one_causes() -> None:
    graph = [node("x", "a", "b"), node("y", "a", ""), node("z", "b", "")]
    found = Topology(graph)
    root = found.roots["a"]
    via = found._next
    # A path through x, what follows from it, and only then the one through y.
    assert root < via[0][root] < via[2][via[0][root]] < via[1][root]
    assert found.timers[0] != found.timers[1]
    last = [node("x", "a", "b"), node("y", "a", "")]
    last[0].is_last = True
    late = Topology(last)
    assert late.timers[1] < late.timers[0]
