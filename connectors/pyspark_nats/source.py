"""The data source that Spark knows as "nats"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pyspark_nats import rows, sink_options, source_options, typed
from pyspark_nats.collector import freeze_imported

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_nats.reader import NatsReader, NatsStreamReader
    from pyspark_nats.writer import NatsStreamWriter, NatsWriter


class NatsDataSource(DataSource):
    """JetStream streams as tables and as streams, to read and to write."""

    @classmethod
    def name(cls) -> str:
        """What ``format(...)`` takes."""
        return "nats"

    def schema(self) -> str:
        """The columns when the user gives no ``.schema(...)``."""
        read = source_options.source_options(self.options)
        if read.format != "raw":
            return typed.ddl(read)
        return rows.MARKED_DDL if read.range_markers else rows.raw_ddl(read.include_headers)

    def reader(self, schema: StructType) -> NatsReader:
        """For ``spark.read``."""
        from pyspark_nats import reader

        kind = reader.NatsFilteringReader if reader.is_pushing_filters() else reader.NatsReader
        return kind(source_options.source_options(self.options), schema)

    def streamReader(self, schema: StructType) -> NatsStreamReader:
        """For ``spark.readStream``."""
        from pyspark_nats.reader import NatsStreamReader

        source_options.check_streaming(self.options)
        return NatsStreamReader(source_options.source_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> NatsWriter:
        """For ``df.write``."""
        from pyspark_nats.writer import NatsWriter

        freeze_imported()
        return NatsWriter(sink_options.sink_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> NatsStreamWriter:
        """For ``df.writeStream``."""
        from pyspark_nats.writer import NatsStreamWriter

        freeze_imported()
        return NatsStreamWriter(sink_options.sink_options(self.options), schema)
