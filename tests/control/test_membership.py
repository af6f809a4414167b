"""Names of workers and managers that are in use."""

from __future__ import annotations

import pytest

from mesh.control import membership
from tests.support.cluster_lines import MARGIN_S, TTL_S, node


@pytest.mark.parametrize(
    ("age_s", "incarnation", "taken"),
    [(0.0, "w1-2", True), (2.4, "w1-2", True), (2.6, "w1-2", False), (0.0, "w1-1", False)],
)
def test_a_name_is_taken_while_another_process_beats(
    age_s: float, incarnation: str, taken: bool
) -> None:
    held = node("w1", 10.0 - age_s)
    assert membership.is_id_in_use(held, incarnation, 10.0, TTL_S, MARGIN_S) == taken
