"""Problems of a text that takes its name from its file."""

from __future__ import annotations

import pytest

from mesh.errors import Position
from mesh.language_service.document import Document

TEXT = """define stream S (a int);
@dist(execGroup='g', parallel='2') from S[a > 1] select a insert into T;
@dist(execGroup='g', parallel='3') from S select a insert into U;
"""


@pytest.mark.parametrize("name", ["plain", "a name with blanks"])
def test_a_fault_of_the_plan_is_where_it_is_in_the_file(name: str) -> None:
    (problem,) = Document(TEXT, name).problems
    assert (problem.code, problem.position) == ("MESH-P202", Position(3, 1, 5))
