"""The loop of a manager as a value: the order of what it writes down."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mesh.control import reconcile
from mesh.control.election import ManagerCandidate
from mesh.control.journal import JournalEntry, story
from mesh.control.manager_state import (
    AGAIN_S,
    ActionPerformed,
    Instruction,
    LeaseWritten,
    ManagerState,
    Observed,
    Perform,
    Wait,
    WriteLease,
)
from tests.support.cluster_lines import SETTINGS, TTL_S, snapshot

if TYPE_CHECKING:
    from mesh.control.actions import Action
    from mesh.control.snapshot import ClusterSnapshot
    from mesh.settings import Settings

#: Wall clock of the decision, and of the moment at which the shell notes its entries.
DECIDED_MS, NOTED_MS = 1000, 1001


def test_a_manager_leads_before_it_places_in_the_story() -> None:
    state = ManagerState(ManagerCandidate("m1", ""), SETTINGS)
    noted: list[JournalEntry] = []

    def after(event: Observed | LeaseWritten | ActionPerformed, line: str) -> Instruction:
        instructions = state.handle(event, snapshot(line), wall_ms=DECIDED_MS)
        noted.extend(
            replace(one, at_ms=one.at_ms or NOTED_MS)
            for one in instructions
            if isinstance(one, JournalEntry)
        )
        return instructions[-1]

    seen = "now=0 workers=w1:0 apps=A:g*1"
    assert isinstance(after(Observed(), seen), WriteLease)
    assert isinstance(after(LeaseWritten(), f"{seen} lease=m1@5"), Perform)
    after(ActionPerformed(), f"{seen} lease=m1@5")

    texts = [entry.text for entry in story(noted, "A")]
    assert texts[0] == "leads"
    assert "placed" in texts[1]


def test_a_decision_without_actions_is_made_again_for_news_or_a_deadline_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[float] = []
    decide = reconcile.decide

    def counted(view: ClusterSnapshot, settings: Settings) -> list[Action]:
        made.append(view.now_s)
        return decide(view, settings)

    monkeypatch.setattr(reconcile, "decide", counted)
    state = ManagerState(ManagerCandidate("m1", ""), SETTINGS)

    def renewed(now_s: float, beat_s: float, news: int | None) -> Instruction:
        """The last instruction after the lease was renewed, with the worker's last heartbeat."""
        line = f"now={now_s} workers=w1:{beat_s} apps=A:g*1 placed=A-g-1:w1@5 lease=m1@5"
        view = replace(snapshot(line), news=news)
        lease = view.lease
        assert lease is not None
        # It is due for renewal.
        due = replace(lease, seen_at_s=now_s - TTL_S / 2)
        assert isinstance(state.handle(Observed(), replace(view, lease=due))[-1], WriteLease)
        return state.handle(LeaseWritten(), replace(view, lease=replace(due, seen_at_s=now_s)))[-1]

    for now_s, beat_s, news in (
        (40.0, 39.9, 7), (41.0, 40.9, 7), (42.0, 41.9, 7), (43.0, 42.9, 8), (44.0, 43.9, 8),
        # No heartbeat since: the worker is suspect.
        (46.0, 43.9, 8), (46.1, 46.05, 8), (46.2, 46.15, None),
    ):  # fmt: skip
        assert isinstance(renewed(now_s, beat_s, news), Wait)
    assert made == [40.0, 43.0, 46.0, 46.2]
    # Whatever happens, it is made again after a while.
    renewed(47.0, 46.9, 9)
    renewed(47.0 + AGAIN_S, 47.0 + AGAIN_S - 0.1, 9)
    assert made[-2:] == [47.0, 47.0 + AGAIN_S]
