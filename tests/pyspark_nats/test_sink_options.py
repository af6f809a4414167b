"""Options of the sink: words that other sinks have, and their remedies."""

from __future__ import annotations

import pytest

from pyspark_nats.errors import OptionError
from pyspark_nats.sink.sink_options import sink_options
from pyspark_nats.source.source_options import source_options

GIVEN = {"servers": "nats://h", "stream": "S"}


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("mode", '"corrupt"'), ("columnNameOfCorruptRecord", '"corrupt" to "column"'),
        ("subscribe", 'Set "stream"'), ("subscribePattern", 'Name the streams in "stream"'),
        ("kafka.bootstrap.servers", '"servers"'), ("topic", '"subject"'),
        ("sujbect", 'Did you mean "subject"'),
    ],
)  # fmt: skip
def test_words_of_other_sources_have_a_remedy(name: str, remedy: str) -> None:
    for read in (source_options, sink_options):
        with pytest.raises(OptionError, match=f'option "{name.lower()}" of the nats') as refused:
            read({**GIVEN, name: "x"})
        assert remedy in refused.value.hint


@pytest.mark.parametrize(
    "given", [{}, {**GIVEN, "option.servers": "nats://h"}, {**GIVEN, "provider": "n", "owner": "o"}]
)
def test_a_table_of_the_catalog_names_the_remedy(given: dict[str, str]) -> None:
    for read in (source_options, sink_options):
        with pytest.raises(OptionError) as refused:
            read(given)
        assert "Spark's catalog" in str(refused.value)
        assert "CREATE TEMPORARY VIEW" in refused.value.hint
