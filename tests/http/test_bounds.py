"""Bounds of what waits: one user has half of the turns."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from mesh.dashboard.responses import FOLLOWERS_MAX
from mesh.errors import MeshError
from mesh.http.bounds import Bound
from mesh.model.access import Identity, current


def _taken(bound: Bound, user: str, turns: ExitStack) -> int:
    """The turns that a user gets."""
    token = current.set(Identity(user, ()))
    try:
        taken = 0
        while bound.has_room():
            turns.enter_context(bound.turn())
            taken += 1
        with pytest.raises(MeshError, match="MESH-A429"), bound.turn():
            pass
        return taken
    finally:
        current.reset(token)


def test_one_user_has_half_of_the_turns_of_any_bound() -> None:
    for bound in (Bound(32, "queries wait"), Bound(FOLLOWERS_MAX, "pages"), Bound(4, "questions")):
        half = bound._most // 2
        with ExitStack() as turns:
            assert [_taken(bound, user, turns) for user in ("eve", "ada", "bob")] == [half, half, 0]
        with ExitStack() as turns:
            assert _taken(bound, "ada", turns) == half
    with ExitStack() as turns:
        # Without users there is one, and a bound of one has a turn.
        assert _taken(Bound(8, "requests"), "", turns) == 8
        assert _taken(Bound(1, "requests"), "eve", turns) == 1
