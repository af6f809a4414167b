"""Rows to messages: payloads that read back, subjects, positions, cuts that depend on rows only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types

from pyspark_nats import decode, tuning
from pyspark_nats.arrow import arrow
from pyspark_nats.encode import columns, row_mapping
from pyspark_nats.errors import OptionError, OrderError, SchemaError
from pyspark_nats.sink import messages_out, sink_options, writer
from pyspark_nats.sink.messages_out import ROWS_BITS
from tests.support.mapped_rows import made

if TYPE_CHECKING:
    from collections.abc import Callable

# --- shapes


TYPES = {
    "long": types.LongType(),
    "string": types.StringType(),
    "double": types.DoubleType(),
    "binary": types.BinaryType(),
    "interval": types.DayTimeIntervalType(),
}


def spark_schema(ddl: str) -> types.StructType:
    """Like ``StructType.fromDDL``, which needs a session."""
    fields = [part.split() for part in ddl.split(", ")]
    return types.StructType([types.StructField(name, TYPES[kind]) for name, kind in fields])


def shaper(
    ddl: str, *, out: Callable[[tuple[str, str], int], int] = lambda *_: -1, **given: Any
) -> row_mapping.RowMapper:
    options = sink_options.sink_options({"servers": "x", "stream": "S", **given})
    what = columns.columns(options, spark_schema(ddl))
    return row_mapping.RowMapper(options, what, row_mapping.Task("q", 3, 7), lambda _: "S", out)


def events(count: int, devices: int) -> Any:
    return arrow.record_batch(
        {"id": pa.array(range(count), pa.int64()), "d": [f"d{n % devices}" for n in range(count)]}
    )


@pytest.mark.parametrize(
    ("ddl", "given", "stream"),
    [
        ("id long", {"subject": "ev.all"}, "S"),
        ("id long", {"subject": "ev.all", "stream": ""}, "found"),
        ("id long, d string", {"subject": "ev.{d}"}, "S"),
        ("id long, d string", {"subject": "ev.{d}", "stream": ""}, ""),
        ("data binary, subject string", {"format": "raw", "stream": ""}, ""),
        ("data binary, stream string", {"format": "raw", "subject": "ev.all"}, ""),
    ],
)
def test_the_stream_of_no_rows_is_known_where_rows_do_not_say_it(
    ddl: str, given: dict[str, str], stream: str
) -> None:
    options: dict[str, Any] = {"format": "json", **given}
    shaped = shaper(ddl, **options)
    shaped.stream_of = lambda _: "found"
    assert shaped.only_stream == stream


FORMATS = [("json", 1), ("json", 7), ("msgpack", 1), ("msgpack", 5), ("arrow", 1), ("arrow", 4)]


@pytest.mark.parametrize(("form", "size"), FORMATS)
@given(cuts=st.lists(st.integers(0, 60), max_size=4))
def test_messages_do_not_depend_on_batches_and_hold_all_events(
    form: str, size: int, cuts: list[int]
) -> None:
    rows = events(60, 3)
    given: dict[str, Any] = {"format": form, "rowsPerMessage": str(size), "subject": "ev.{d}"}
    table = made(shaper("id long, d string", **given), rows, cuts)
    assert table.equals(made(shaper("id long, d string", **given), rows, []))
    assert table["position"].to_pylist() == [(7 << ROWS_BITS) + n for n in range(len(table))]
    assert set(table["producer"].to_pylist()) == {"q-3"}
    read = decode.decode_messages(
        table["data"].combine_chunks(), table["content_type"].combine_chunks(), rows.schema
    )
    assert not read.errors
    ids: list[int] = [int(n or 0) for n in read.rows.column("id").to_pylist()]
    assert sorted(ids) == list(range(60))
    subjects = table["subject"].to_pylist()
    assert [subjects[m] for m in read.message] == [f"ev.d{n % 3}" for n in ids]
    # In order within a subject, and never more than the limit in a message.
    for device in range(3):
        mine = [n for n in ids if n % 3 == device]
        assert mine == sorted(mine)
    assert max(read.index) < size
    assert len(table) == 3 * -(-20 // size)


def test_blocks_end_by_the_rows_and_not_by_their_batches() -> None:
    rows = arrow.record_batch(
        {"id": pa.array(range(500), pa.int64()), "d": ["x" * (n * 7 % 40) for n in range(500)]}
    )
    given: dict[str, Any] = {"format": "json", "rowsPerMessage": "5", "subject": "ev"}
    tables = []
    for cuts in ([], [1, 2, 3, 250], list(range(0, 500, 9)), [499]):
        mapper = shaper("id long, d string", **given)
        mapper.block_rows, mapper.block_bytes = 64, 400
        tables.append(made(mapper, rows, cuts))
    assert all(table.equals(tables[0]) for table in tables[1:])


SOURCE = "id long, d string, _stream string, _sequence long, _index long"


def from_source(first: int, last: int) -> Any:
    rows = events(last, 3).slice(first)
    n = range(first, last)
    return arrow.record_batch(
        {
            **{name: rows.column(name) for name in rows.schema.names},
            "_stream": ["IN"] * len(n),
            "_sequence": pa.array([1 + k // 4 for k in n], pa.int64()),
            "_index": pa.array([k % 4 for k in n], pa.int64()),
        }
    )


def position(n: int) -> int:
    return ((1 + n // 4) << 20) | n % 4


def test_the_source_gives_positions_that_are_no_part_of_the_event() -> None:
    table = made(shaper(SOURCE, format="json", subject="ev.{d}"), from_source(0, 9), [4])
    assert table["position"].to_pylist() == [position(n) for n in range(9)]
    assert set(table["producer"].to_pylist()) == {"q-IN"}
    assert orjson.loads(table["data"][4].as_py()) == {"id": 4, "d": "d1"}


@pytest.mark.parametrize(("form", "size"), [("json", 7), ("msgpack", 5), ("arrow", 4)])
@pytest.mark.parametrize("out", [0, 5, 13, 39, 40])
def test_events_that_are_out_are_left_out_of_messages_cut_elsewhere(
    form: str, size: int, out: int
) -> None:
    asked: list[tuple[str, str]] = []

    def marker(pair: tuple[str, str], first: int) -> int:
        asked.append(pair)
        return position(out - 1) if out else -1

    given: dict[str, Any] = {"format": form, "rowsPerMessage": str(size), "subject": "ev.{d}"}
    table = made(shaper(SOURCE, out=marker, **given), from_source(0, 40), [11])
    assert set(asked) == {("S", "q-IN")}
    schema = arrow.schema([("id", pa.int64()), ("d", pa.string())])
    read = decode.decode_messages(
        table["data"].combine_chunks(), table["content_type"].combine_chunks(), schema
    )
    found: list[Any] = read.rows.column("id").to_pylist()
    assert sorted(found) == list(range(out, 40))
    if out < 40:
        # The messages of a block are valid only together: only its end is a position.
        assert set(table["position"].to_pylist()) == {position(39)}
        assert set(table["first_position"].to_pylist()) == {position(out)}


def test_an_event_gives_one_row_at_the_most() -> None:
    twice = arrow.concat_batches([from_source(3, 4), from_source(3, 4)])
    for size in ("1", "2"):
        shaped = shaper(SOURCE, format="json", subject="ev", rowsPerMessage=size)
        with pytest.raises(OrderError, match="event gives one row at the most"):
            messages_out.check_growing(
                ("S", "p"), (-1, -1), made(shaped, twice, []).combine_chunks().to_batches()[0]
            )


@pytest.mark.parametrize(
    ("ddl", "given", "complaint"),
    [
        ("a long", {"subject": "ev"}, 'column "a" is not one the raw form writes'),
        ("subject string", {}, 'column "data" is missing'),
        ("data binary", {}, 'neither a column nor an option "subject"'),
        ("data binary, position long", {"subject": "ev"}, "go together"),
        ("a long, b long", {"subject": "ev.{c}", "format": "json"}, 'column "c" of the subject'),
        ("a double", {"subject": "ev.{a}", "format": "json"}, "is of type double"),
        ("a interval", {"subject": "ev", "format": "json"}, 'column "a" is of type interval day'),
        ("a long, A long, a string", {"subject": "ev", "format": "json"}, 'two columns "a"'),
        ("_stream string, _sequence long", {"subject": "ev", "format": "json"}, "no column that"),
        ("a long, _error string", {"subject": "ev", "format": "json"}, 'column "_error" tells'),
        (
            "a long, _stream string, _sequence string", {"subject": "ev", "format": "json"},
            'column "_sequence" is of type string, not bigint',
        ),
        (
            "a long, _event_time_ms long",
            {"subject": "ev", "format": "json", "rowsPerMessage": "2"},
            "goes to a header of each message",
        ),
    ],
)  # fmt: skip
def test_wrong_columns_are_named(ddl: str, given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SchemaError, match=complaint):
        shaper(ddl, **given)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"deliveryGuarantee": "exactly_once"}, 'Did you mean "exactly-once"'),
        ({"format": "jsn"}, 'Did you mean "json"'),
        ({"rowsPerMessage": "0", "format": "json"}, "not a whole number from 1 up"),
        ({"rowsPerMessage": "5"}, "a raw row is a message of its own"),
        ({"producer": "a.b"}, "can't be part of a subject"),
        ({"markerPrefix": "a.>"}, "no subject to publish to"),
        ({"delivery": "at-least-once"}, 'Did you mean "deliveryGuarantee"'),
        ({"epoch": "-1"}, "not a whole number from 0 up"),
    ],
)
def test_wrong_options_are_named(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        sink_options.sink_options({"servers": "x", "subject": "ev", **given})


@pytest.mark.parametrize(
    ("ddl", "given", "is_taken"),
    [
        ("data binary", {}, False),
        ("data binary", {"deliveryGuarantee": "at-least-once"}, True),
        ("data binary, producer string, position long", {}, True),
        ("data binary, _stream string, _sequence long", {}, True),
        ("a long", {"format": "json"}, False),
        ("a long, _stream string, _sequence long", {"format": "json"}, True),
    ],
)
def test_rows_that_are_counted_by_batches_are_refused_where_batches_may_be_cut_anew(
    ddl: str, given: dict[str, str], is_taken: bool
) -> None:
    schema = spark_schema(ddl)
    options = sink_options.sink_options(
        {"servers": "x", "subject": "ev", **tuning.asynchronous_progress(), **given}
    )
    if is_taken:
        writer.NatsStreamWriter(options, schema)
        return
    with pytest.raises(OptionError, match="rows have to say their positions"):
        writer.NatsStreamWriter(options, schema)
