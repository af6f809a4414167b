"""Statements of apps: their places, and the columns that they name."""

from __future__ import annotations

import pytest

from mesh.model.statements import columns_in, formatted, places
from mesh.model.types import Attribute, AttributeType

pytestmark = pytest.mark.nats


def test_places_are_not_those_of_texts_names_and_comments() -> None:
    statement = "select '?''?', \"a?\", `b?` -- ?\n, 5 % ?, /* ? */ ? like '50%'"
    assert places(statement) == 2
    assert formatted(statement) == (
        "select '?''?', \"a?\", `b?` -- ?\n, 5 %% %s, /* ? */ %s like '50%%'"
    )


def test_columns_are_names_with_types() -> None:
    assert columns_in("a STRING , b boolean") == (
        Attribute("a", AttributeType.STRING),
        Attribute("b", AttributeType.BOOL),
    )
    for text in ("", "a", "a object", "a int, a int", "a int;", "a int b"):
        with pytest.raises(ValueError, match=r"attribute"):
            columns_in(text)
