"""Guarantees that a text demands."""

from __future__ import annotations

from mesh.connect.spec import Guarantee
from mesh.plan.guarantees import demanded_guarantee


def test_the_guarantee_that_a_text_demands() -> None:
    stream = "define stream S (a int); from S select a insert into T;"
    demanded = demanded_guarantee(f"@App:name('A') @App:guarantee('exactly-once') {stream}")
    assert demanded is Guarantee.EXACTLY_ONCE
    assert demanded_guarantee(f"@App:name('A') {stream}") is None
    assert demanded_guarantee(f"@App:name('A') /* guarantee */ {stream}") is None
