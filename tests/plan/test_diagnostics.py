"""Errors about names: what is near is proposed, and no list grows without end."""

from __future__ import annotations

from itertools import count, islice

import pytest

from mesh.errors import MeshError
from mesh.plan.build import plan
from mesh.plan.diagnostics import nearest, shortened

HEAD = (
    "@App:name('A') define stream S (price double, qty int); "
    "define stream T (qty int, note string); "
)


def refusal(query: str) -> MeshError:
    with pytest.raises(MeshError) as found:
        plan(HEAD + query)
    return found.value


def test_lists_of_names_end() -> None:
    assert shortened([]) == ""
    assert shortened(map(str, range(20))) == ", ".join(map(str, range(20)))
    assert shortened((str(n) for n in count()), " or ").endswith(" or 19 or ..")


def test_the_nearest_name_is_looked_for_within_bounds() -> None:
    assert nearest("prise", ["qty", "price"]) == 'Did you mean "price"?'
    assert nearest("other", ["qty", "price"]) is None
    assert nearest("p" * 101, ["p" * 100]) is None
    # A search through names without end would not come back.
    assert nearest("prise", (f"zzz{n}" for n in count())) is None
    assert nearest("prise", islice((f"zzz{n}" for n in count()), 5)) is None


def test_an_attribute_that_is_not_there() -> None:
    error = refusal("from S select prise insert into O;")
    assert error.code == "MESH-L202"
    assert "price double, qty int" in str(error.detail)
    assert error.hint == 'Did you mean "price"?'
    assert error.position is not None
    assert (error.position.line, error.position.column) == (
        1,
        len(HEAD) + len("from S select ") + 1,
    )


def test_a_source_that_is_not_there() -> None:
    error = refusal("from S as a join T as b on a.qty == c.qty select a.qty insert into O;")
    assert error.code == "MESH-L203"
    assert '"c"' in error.message
    assert "a" in str(error.detail)


def test_an_attribute_of_two_inputs() -> None:
    error = refusal("from S#window.length(1) join T#window.length(1) select qty insert into O;")
    assert error.code == "MESH-L204"
    assert error.hint == "Write S.qty, for instance."
    same = refusal(
        "from S#window.length(1) as a join S#window.length(1) as b select qty insert into O;"
    )
    assert same.code == "MESH-L204"


def test_two_columns_of_one_name() -> None:
    error = refusal("from S#window.length(1) join T#window.length(1) insert into O;")
    assert error.code == "MESH-L210"
    assert 'attribute "qty"' in error.message
