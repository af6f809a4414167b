"""Tags of rows."""

from __future__ import annotations

import pytest

from pyspark_nats.sink import row_tags

pytestmark = pytest.mark.nats


def test_tags_of_rows_do_not_depend_on_how_they_are_asked_for() -> None:
    key = bytes(range(16))
    whole = row_tags.tags(key, 1, 3000)
    parts = b"".join(row_tags.tags(key, n, 1) for n in range(1, 3001))
    assert whole == parts
    assert row_tags.tags(bytes(16), 1, 3000) != whole
    size = row_tags.SIZE
    assert len({whole[at : at + size] for at in range(0, len(whole), size)}) == 3000
