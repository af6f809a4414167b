"""Source rows of the events that a stateless query emits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mesh.spark.stateless_task import _row_numbers


def _events(rows: list[tuple[int, int]]) -> Any:
    """Only what is looked at: message and place within it, of each event."""
    order, chunk = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    return SimpleNamespace(order=order, chunk=chunk)


IN_ORDER = [(7, 0), (7, 1), (8, 0), (9, 0), (9, 1), (9, 2)]
MIXED = [IN_ORDER[n] for n in (3, 0, 5, 1, 4, 2)]


@pytest.mark.parametrize("source", [IN_ORDER, MIXED], ids=["in order", "mixed"])
@pytest.mark.parametrize(
    "made", [[0, 1, 2, 3, 4, 5], [1, 4], [5, 0], [2, 2, 3], []],
    ids=["each", "some", "others", "twice", "none"],
)  # fmt: skip
def test_each_event_knows_its_source(source: list[tuple[int, int]], made: list[int]) -> None:
    found = _row_numbers(_events([source[n] for n in made]), _events(source))
    assert found.tolist() == made
