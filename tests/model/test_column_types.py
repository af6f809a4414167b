"""Column types of databases, and the types of attributes that fit them."""

from __future__ import annotations

import pytest

from mesh.model.column_texts import form
from mesh.model.column_types import ColumnType, Fit, Kind, NoFormError, fit, fitting
from mesh.model.stored import Backend
from mesh.model.types import AttributeType as A


def test_each_pair_has_a_fit_and_the_reverse() -> None:
    """Every kind is a string's, so no column is without an attribute that fits."""
    for kind in Kind:
        for backend in Backend:
            column = ColumnType(backend, str(kind), kind, 10, 2, (0, 100))
            assert A.STRING in fitting(column), column
            assert fit(column, A.OBJECT) in (Fit.EXACT, Fit.NONE)


@pytest.mark.parametrize(
    ("declared", "kind", "text"),
    [
        ("uuid", Kind.UUID, "a0ee"),
        ("date", Kind.DATE, "2026-02-30"),
        ("date", Kind.DATE, "2026-11-29 10:00"),
        ("timestamptz", Kind.TIMESTAMPTZ, "2026-11-29 10:00:00"),
        ("timestamp", Kind.TIMESTAMP, "2026-11-29 10:00:00+00"),
        ("time", Kind.TIME, "25:00:00"),
        ("inet", Kind.INET, "10.0.0"),
        ("cidr", Kind.CIDR, "10.0.0.1/8"),
        ("jsonb", Kind.JSONB, "{"),
        ("json", Kind.JSON, "NaN"),
        ("xml", Kind.XML, "<a>"),
        ("bytea", Kind.BYTES, "00ff"),
        ("boolean", Kind.BOOLEAN, "1"),
        ("money", Kind.MONEY, "1.234"),
        ("numeric", Kind.NUMERIC, "1,5"),
    ],
)
def test_texts_of_no_value_have_no_form(declared: str, kind: Kind, text: str) -> None:
    with pytest.raises(NoFormError):
        form(ColumnType(Backend.POSTGRESQL, declared, kind), text)
