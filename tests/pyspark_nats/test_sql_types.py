"""Every type of Spark SQL in every format: read back exactly, or refused with the column's name."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions
from pyspark.sql import types as sql

from pyspark_nats import sql_types
from pyspark_nats.conversions import ConversionOutcome
from pyspark_nats.encode import columns
from pyspark_nats.errors import SchemaError
from pyspark_nats.sink import sink_options
from pyspark_nats.source import source_options, typed_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


FORMATS: Final = ("json", "msgpack", "arrow")
#: Values by a type of SQL; each type is tried with null, and in an array, a struct and a map too.
EXACT: Final = {
    "string": ["''", "'q\"\\\\ \\n \\u0001 ä €'", "'null'"],
    "boolean": ["true", "false"],
    "byte": ["-128", "127"],
    "short": ["-32768", "32767"],
    "int": ["-2147483648", "2147483647"],
    "long": ["-9223372036854775808", "9223372036854775807"],
    "float": ["cast('3.4028235e38' AS float)", "cast('1.4e-45' AS float)", "0.1f"],
    "double": ["1.7976931348623157e308D", "4.9e-324D", "-0.0D", "0.1D", "1e22D"],
    "decimal(10,2)": ["-99999999.99", "0.01"],
    "decimal(38,0)": ["99999999999999999999999999999999999999", "-1"],
    "decimal(38,18)": ["99999999999999999999.999999999999999999", "-0.000000000000000001"],
    "decimal(38,38)": ["0.99999999999999999999999999999999999999"],
    "timestamp": [
        "timestamp'0001-01-01 00:00:00Z'", "timestamp'2020-01-01 12:30:00.000001+02:00'",
        "timestamp'9999-12-31 23:59:59.999999Z'",
    ],
    "timestamp_ntz": [
        "timestamp_ntz'0001-01-01 00:00:00'", "timestamp_ntz'9999-12-31 23:59:59.999999'",
    ],
    "date": ["date'0001-01-01'", "date'9999-12-31'"],
    "binary": ["X''", "X'00ff'"],
}  # fmt: skip
#: Values that JSON does not have.
UNFIT: Final = {"float": "float('NaN')", "double": "double('-Infinity')"}
_LONG: Final = sql.LongType()
#: Types that events do not have, by the row of the table.
REFUSED: Final[dict[str, tuple[sql.DataType, ...]]] = {
    "map with other keys": tuple(
        sql.MapType(key, _LONG) for key in (sql.IntegerType(), sql.DateType(), sql.BinaryType())
    ),
    "interval": (
        sql.DayTimeIntervalType(), sql.YearMonthIntervalType(), sql.CalendarIntervalType(),
    ),
    "time": (sql.TimeType(6), sql.TimeType(0)),
    "void": (sql.NullType(),),
    "variant": (sql.VariantType(),),
    "char, varchar": (sql.CharType(3), sql.VarcharType(3)),
    "geometry, geography, types of users": (sql.GeometryType(4326), sql.GeographyType(4326)),
}  # fmt: skip


def _all(spark: SparkSession, form: str) -> DataFrame:
    """A column for each type, and for each an array, a struct and a map of it."""
    named = []
    for at, (kind, values) in enumerate(EXACT.items()):
        more = [UNFIT[kind]] if kind in UNFIT and form != "json" else []
        held = [f"cast({value} AS {kind})" for value in (*values, *more, "NULL")]
        listed = f"array({', '.join(held)})"
        named += [
            f"try_element_at({listed}, cast(id AS int)) AS plain{at}",
            f"{listed} AS list{at}",
            f"named_struct('a', {listed}[id % {len(held)}], 'b', cast(NULL AS {kind})) AS row{at}",
            f"map('k', {listed}[0], '', NULL) AS map{at}",
        ]
    named += [
        "named_struct('start', timestamp'2020-01-01', 'end', timestamp'2020-01-02') AS pane",
        "array(array(named_struct('m', map('a', timestamp'2020-01-01')))) AS deep",
        "if(id = 1, cast(array() AS array<int>), NULL) AS empty",
    ]
    return spark.range(1, 7).selectExpr("id", *named)


def _write(frame: DataFrame, broker: Any, form: str, subject: str = "ev.S", **given: str) -> None:
    writer = frame.write.format("nats").mode("append")
    writer.options(**broker.given, stream="S", subject=subject, format=form, **given).save()


def _values(frame: DataFrame) -> list[str]:
    # Texts compare NaN and -0.0 too.
    return sorted(map(repr, frame.toArrow().to_pylist()))


@pytest.mark.spark
@pytest.mark.nats
@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_every_type_is_read_back_exactly(spark: SparkSession, broker: Any, form: str) -> None:
    broker.create("S")
    frame = _all(spark, form)
    _write(frame, broker, form)
    reader = spark.read.format("nats").options(**broker.given, stream="S", subject="ev.S")
    expected = _values(frame)
    assert _values(reader.option("format", form).schema(frame.schema).load()) == expected
    ddl = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in frame.schema)
    assert _values(reader.option("format", "auto").option("schema", ddl).load()) == expected


@pytest.mark.sampled(3)
@pytest.mark.spark
@pytest.mark.nats
@pytest.mark.parametrize("form", FORMATS)
def test_inferred_types_are_read_back_exactly(spark: SparkSession, broker: Any, form: str) -> None:
    broker.create("S")
    at = dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)
    row = {
        "s": "a", "n": 1 << 40, "d": 0.1, "b": True, "at": at, "day": at.date(), "raw": b"\0",
        "price": Decimal("12345678901234567890.123456789012345678"), "none": ["a", None],
        "tags": {"a": at}, "rows": [sql.Row(x=1, at=at)],
    }  # fmt: skip
    frame = spark.createDataFrame([sql.Row(**row)])
    _write(frame, broker, form)
    reader = spark.read.format("nats").options(**broker.given, stream="S", subject="ev.S")
    read = reader.option("format", form).schema(frame.schema).load()
    assert _values(read) == _values(frame)


@pytest.mark.sampled(2)
@pytest.mark.spark
@pytest.mark.nats
@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_windows_are_written(spark: SparkSession, broker: Any, form: str) -> None:
    broker.create("S")
    times = spark.range(300).selectExpr("timestamp_seconds(id) AS at")
    frame = times.groupBy(functions.window("at", "1 minute")).count()
    _write(frame, broker, form, rowsPerMessage="2")
    reader = spark.read.format("nats").options(**broker.given, stream="S", subject="ev.S")
    read = reader.option("format", "auto").schema(frame.schema).load()
    assert _values(read) == _values(frame)
    assert read.count() == 5


@pytest.mark.sampled(4)
@pytest.mark.spark
@pytest.mark.nats
@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("INTERVAL '1' DAY", "interval day"), ("INTERVAL '1' MONTH", "interval month"),
        ("map(1, 2)", "map<int,int>"), ("NULL", "void"), ("parse_json('{}')", "variant"),
        ("time'12:00:00'", "time(6)"), ("array(map(date'2020-01-01', 1))", "map<date,int>"),
    ],
)  # fmt: skip
def test_types_that_are_not_read_back_are_not_written(
    spark: SparkSession, broker: Any, form: str, value: str, kind: str
) -> None:
    broker.create("S")
    frame = spark.sql(f"SELECT 1 AS id, {value} AS v")
    expected = re.escape(f'column "v" is of type {kind}, which events do not have')
    with pytest.raises(PySparkException, match=f"{expected} .PYSPARK-NATS-SCHEMA."):
        _write(frame, broker, form)
    reader = spark.read.format("nats").options(**broker.given, stream="S", format=form)
    with pytest.raises(PySparkException, match=f"{expected} .PYSPARK-NATS-SCHEMA."):
        reader.schema(frame.schema).load().collect()
    assert broker.info("S").last == 0


@pytest.mark.spark
@pytest.mark.nats
@pytest.mark.slow
def test_a_template_takes_no_timestamp(spark: SparkSession, broker: Any) -> None:
    broker.create("S", "ev.>")
    frame = spark.sql("SELECT 1 AS id, timestamp'2020-01-01' AS at")
    with pytest.raises(PySparkException, match=r'"at" of the subject .* is of type timestamp \['):
        _write(frame, broker, "arrow", "ev.{at}")
    with pytest.raises(PySparkException, match=r'Did you mean "id"'):
        _write(frame, broker, "arrow", "ev.{idd}")
    with pytest.raises(PySparkException, match=r"There are: at, id\."):
        _write(frame, broker, "json", "ev.{region}")
    day = frame.selectExpr("*", "date_format(at, 'yyyyMMdd-HHmm') AS minute")
    _write(day, broker, "json", "ev.{minute}")
    assert broker.info("S").last > 0


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("row", sql_types.SPARK.rows)
def test_each_cell_of_the_table(row: str, form: str) -> None:
    cell = sql_types.SPARK.rows[row][sql_types.SPARK.columns.index(form)]
    if cell.outcome is ConversionOutcome.EXACT:
        assert row not in REFUSED
        return
    assert cell.outcome is ConversionOutcome.NO
    for kind in REFUSED[row]:
        for whole in (kind, sql.ArrayType(kind), sql.StructType([sql.StructField("a", kind)])):
            schema = sql.StructType([sql.StructField("id", _LONG), sql.StructField("v", whole)])
            with pytest.raises(SchemaError, match='column "v" is of type') as refused:
                columns.columns(_sink(form), schema)
            assert refused.value.hint
            with pytest.raises(SchemaError, match='column "v" is of type'):
                typed_rows.typed(_source(form), schema)


def test_the_table_has_every_type_of_spark() -> None:
    tried = {type(kind) for kinds in REFUSED.values() for kind in kinds}
    tried |= {*sql_types.PLAIN, sql.ArrayType, sql.MapType, sql.StructType}
    kinds = {
        kind for kind in vars(sql).values()
        if isinstance(kind, type) and issubclass(kind, sql.DataType) and not kind.__subclasses__()
    }  # fmt: skip
    assert kinds - tried - {sql.UserDefinedType} == {sql.StructField}


class _Point(sql.UserDefinedType):
    @classmethod
    def sqlType(cls) -> sql.DataType:
        return sql.ArrayType(sql.DoubleType())


def test_types_of_users_and_equal_names_are_refused() -> None:
    for kind in (
        _Point(),
        sql.StructType([sql.StructField("a", _LONG), sql.StructField("a", _LONG)]),
    ):
        with pytest.raises(SchemaError, match='column "v" is of type'):
            sql_types.event_schema([sql.StructField("v", kind)])


def _sink(form: str) -> sink_options.SinkOptions:
    return sink_options.sink_options({"servers": "nats://h", "subject": "a", "format": form})


def _source(form: str) -> source_options.SourceOptions:
    return source_options.source_options({"servers": "nats://h", "stream": "S", "format": form})
