"""The data source with the name "nats" in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pyspark_nats.gc_freeze import freeze_imported
from pyspark_nats.sink import sink_options
from pyspark_nats.source import rows, source_options, typed_rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_nats.sink.writer import NatsStreamWriter, NatsWriter
    from pyspark_nats.source.reader import NatsReader, NatsStreamReader


class NatsDataSource(DataSource):
    """JetStream streams as tables and as streams, to read and to write."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return "nats"

    def schema(self) -> str:
        """The columns if the user gives no ``.schema(...)``."""
        read = source_options.source_options(self.options)
        if read.format != "raw":
            return typed_rows.ddl(read)
        return rows.raw_ddl(read.include_headers, is_marked=read.range_markers)

    def reader(self, schema: StructType) -> NatsReader:
        """For ``spark.read``."""
        from pyspark_nats.source import reader

        kind = reader.NatsFilteringReader if reader.is_pushing_filters() else reader.NatsReader
        return kind(source_options.source_options(self.options), schema)

    def streamReader(self, schema: StructType) -> NatsStreamReader:
        """For ``spark.readStream``."""
        from pyspark_nats.source.reader import NatsStreamReader

        source_options.check_streaming(self.options)
        return NatsStreamReader(source_options.source_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> NatsWriter:
        """For ``df.write``."""
        from pyspark_nats.sink.writer import NatsWriter

        freeze_imported()
        return NatsWriter(sink_options.sink_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> NatsStreamWriter:
        """For ``df.writeStream``."""
        from pyspark_nats.sink.writer import NatsStreamWriter

        freeze_imported()
        return NatsStreamWriter(sink_options.sink_options(self.options), schema)
