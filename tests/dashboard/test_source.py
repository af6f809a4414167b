"""The text of an app with its errors."""

from __future__ import annotations

import pytest

from mesh.dashboard.source import lines_of
from mesh.errors import MeshError, Position

pytestmark = pytest.mark.nats


def test_errors_are_marked_in_the_lines_of_a_text() -> None:
    errors = [MeshError("MESH-L1", "no", position=Position(2, 3, 2)), MeshError("MESH-L2", "none")]
    first, second = lines_of("ab\ncdefg", errors)
    assert (first.before, first.errors) == ("ab", ())
    assert (second.before, second.wrong, second.after) == ("cd", "ef", "g")
    (past,) = lines_of("ab", [MeshError("MESH-L1", "no", position=Position(1, 9, 1))])
    assert (past.before, past.wrong) == ("ab", "\u2423")
    # Lines end where positions say so, and nowhere else.
    assert [one.before for one in lines_of("a\u2028b\r\nc\rd", ())] == ["a\u2028b", "c", "d"]
