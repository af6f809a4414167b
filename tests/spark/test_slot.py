"""A slot: its stays, and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.spark.shared_query import slot
from mesh.spark.shared_query.slot import of_this_process
from tests.support.slots import mesh, shared

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.own_slots import Mesh, QueryWithoutSpark

__all__ = ("mesh", "shared")

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]


def test_a_stay_is_over_before_its_slot_and_the_next_one_finds_it(
    tmp_path: Path, mesh: Mesh, shared: QueryWithoutSpark
) -> None:
    mesh.start("sums")
    mesh.runs("sums")
    slots = shared.runs[0].slots
    mesh.publish("Numbers", {"n": 1})
    mesh.rows("Sums", 1)
    mesh.until("sums", lambda told: told[-1].messages_in == 1)
    rows = [row for one in slots for row in one.keep_alive(0.0).to_pylist()]
    assert [(row["instance"], row["events_in"], row["events_out"]) for row in rows] == [
        ("A-sums-1", 1, 1)
    ]
    # It works between two stays.
    mesh.publish("Numbers", {"n": 2})
    assert mesh.rows("Sums", 2) == [[1], [3]]
    assert [one.keep_alive(0.0).num_rows for one in slots].count(0) >= 1
    slot._slot = slots[0]
    assert of_this_process(slots[0].options) is slots[0]
    slot._slot = None


def test_a_slot_that_no_task_finds_ends(mesh: Mesh, shared: QueryWithoutSpark) -> None:
    mesh.start("sums")
    mesh.runs("sums")
    slots = shared.runs[0].slots
    for one in slots:
        one.lease_s = 0.0
        one.keep_alive(0.0)
    while not all(one.has_ended for one in slots):
        shared.pause()
