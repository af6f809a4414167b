"""The loop of a manager as a value: the order of what it writes down."""

from __future__ import annotations

from dataclasses import replace

from mesh.control.election import Candidate
from mesh.control.journal import JournalEntry, story
from mesh.control.manager_state import (
    ActionPerformed,
    Instruction,
    LeaseWritten,
    ManagerState,
    Observed,
    Perform,
    WriteLease,
)
from tests.support.cluster_lines import SETTINGS, snapshot

#: Wall clock of the decision, and of the moment at which the shell notes its entries.
DECIDED_MS, NOTED_MS = 1000, 1001


def test_a_manager_leads_before_it_places_in_the_story() -> None:
    state = ManagerState(Candidate("m1", ""), SETTINGS)
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
