"""Templates of subjects."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_nats.arrow import arrow
from pyspark_nats.encode import templates
from pyspark_nats.errors import OptionError, SchemaError


@pytest.mark.parametrize("text", ["a..b", "a.{", "{}", "a.>", "*", "a b", "{x}..{y}", ".a", "a."])
def test_a_template_must_be_a_subject(text: str) -> None:
    with pytest.raises(OptionError, match='option "subject" is'):
        templates.template(text)


def test_a_template_takes_texts_numbers_and_dates() -> None:
    rows = arrow.record_batch(
        {"id": [1, 2], "on": [True, False], "day": pa.array([0, 1], pa.date32()), "s": ["a", "ä-b"]}
    )
    made = templates.template("ev.d{id}-{on}.{day}.{s}.x")
    templates.check_columns(made, {"id": "bigint", "on": "boolean", "day": "date", "s": "string"})
    assert made(rows).to_pylist() == [
        "ev.d1-true.1970-01-01.a.x", "ev.d2-false.1970-01-02.ä-b.x",
    ]  # fmt: skip


@pytest.mark.parametrize("value", ["a.b", "", "*", ">", "a b", "a\n", None])
def test_a_value_that_is_no_token_is_refused(value: str | None) -> None:
    rows = arrow.record_batch({"s": pa.array(["fine", value])})
    with pytest.raises(SchemaError, match='column "s" is'):
        templates.template("ev.{s}")(rows)
