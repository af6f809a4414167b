"""What ``mesh plan`` says of groups that read tables in databases."""

from __future__ import annotations

import pytest

from mesh.plan.build import plan
from mesh.plan.explain import explain, to_values

TEXT = """@App:name('A')
define stream S (k string, a int);
@store(type='rdbms', jdbc.url='jdbc:postgresql://h/d'{more}) @PrimaryKey('k')
define table T (k string, a int);
from S join T on T.k == S.k select T.a insert into O;
"""


@pytest.mark.parametrize(
    ("more", "is_read", "is_repeated"),
    [("", False, True), (", kept='false'", True, True), (", @cache(size='9')", True, False)],
)
def test_a_group_whose_reads_are_not_repeated_is_told(
    more: str, is_read: bool, is_repeated: bool
) -> None:
    found = plan(TEXT.format(more=more))
    said = explain(found)
    assert ("T is read there" in said) is is_read
    assert ("at least once" in said) is not is_repeated
    (group,) = to_values(found)["groups"]
    assert group["looked_up"] == (["T"] if is_read else [])
    assert group["cached"] == ([] if is_repeated else ["T"])
