"""The lease of the leader: never taken while it stands, never held past its end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mesh.control import election
from mesh.control.snapshot import Revisioned
from mesh.model.cluster import LeaseRecord
from tests.support.cluster_lines import candidate


@given(now_s=st.floats(0, 1e6), ttl_s=st.floats(0.1, 1e3), holder=st.sampled_from("ab"))
def test_a_standing_lease_is_never_taken_from_its_holder(
    now_s: float, ttl_s: float, holder: str
) -> None:
    lease: Revisioned[LeaseRecord | None] = Revisioned(LeaseRecord(holder, 1), 3, 0.0)
    rival = candidate("b" if holder == "a" else "a")
    takes_it = isinstance(election.decide(lease, rival, now_s, ttl_s), election.Acquire)
    assert takes_it == (now_s >= ttl_s)


@given(now_s=st.floats(0, 100), seen_at_s=st.floats(0, 100))
def test_who_holds_the_lease_is_never_told_to_stand_by_past_its_end(
    now_s: float, seen_at_s: float
) -> None:
    now_s = max(now_s, seen_at_s)
    lease: Revisioned[LeaseRecord | None] = Revisioned(LeaseRecord("a", 1), 3, seen_at_s)
    decision = election.decide(lease, candidate("a"), now_s, 2.0)
    if isinstance(decision, election.StandBy):
        assert now_s < decision.until_s < seen_at_s + 2.0
