"""Joins that look into a window: the native ones find what a search finds."""

from __future__ import annotations

import random

import pytest

from mesh.operators.executor import ExecutionMode
from mesh.operators.joins.lookup_join import LookupJoin
from tests.support.join_kinds import KINDS
from tests.support.joins import DEFINITIONS, Row, random_steps, run


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(12))
def test_the_native_join_finds_what_looking_into_windows_finds(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rnd = random.Random(seed)
    sides = [rnd.choice(("length(3)", "time(50)", "lengthBatch(2)")) for _ in "LR"]
    app = (
        f"{DEFINITIONS} from L#window.{sides[0]} as x {rnd.choice(KINDS)} R#window.{sides[1]} as y "
        "on x.k == y.k and x.v <= y.w select x.k as k, x.v, y.w insert all events into O;"
    )
    # One event at a time is one millisecond, so that timers of both sides do not meet.
    steps: list[Row] = [
        (1000 + 3 * n, stream, values)
        for n, (_, stream, values) in enumerate(random_steps(seed, "LR"))
    ]
    native = run(app, steps, ExecutionMode.STEP, set())
    monkeypatch.setattr("mesh.operators.joins.query.WindowJoin", LookupJoin)
    assert run(app, steps, ExecutionMode.STEP, set()) == native
