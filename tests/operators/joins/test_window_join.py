"""Joins of windows: the same output whatever the cuts, after a restore, and step by step."""

from __future__ import annotations

import random

import pytest

from mesh.operators.executor import ExecutionMode
from tests.support.join_kinds import KINDS
from tests.support.joins import DEFINITIONS, random_steps, run

WINDOWS = ("length(3)", "time(50)", "timeLength(80, 4)", "lengthBatch(2)", "timeBatch(40)")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(24))
def test_a_join_puts_out_the_same_however_it_is_driven(seed: int) -> None:
    rnd = random.Random(seed)
    sides = [rnd.choice(("", *(f"#window.{w}" for w in WINDOWS))) for _ in "LR"]
    on = rnd.choice(("x.k == y.k", "x.k == y.k and x.v > y.w", "x.v < y.w", "x.v == y.w"))
    other = "L" if seed % 5 == 0 else "R"
    right, w = ("L", "v") if other == "L" else ("R", "w")
    on = on.replace("y.w", f"y.{w}")
    select = rnd.choice(
        (f"x.k as k, x.v, y.{w} as w", "x.k as k, count() as c, sum(x.v) as s group by x.k")
    )
    app = (
        f"{DEFINITIONS} from L{sides[0]} as x {rnd.choice(KINDS)} {right}{sides[1]} as y on {on} "
        f"select {select} insert all events into O;"
    )
    steps = random_steps(seed, "L" if other == "L" else "LR")
    whole = run(app, steps, ExecutionMode.AUTO, set())
    cuts = {n for n in range(1, len(steps)) if rnd.random() < 0.3}
    assert run(app, steps, ExecutionMode.AUTO, cuts) == whole
    assert run(app, steps, ExecutionMode.AUTO, cuts, saves=True) == whole
    assert run(app, steps, ExecutionMode.STEP, set()) == whole
