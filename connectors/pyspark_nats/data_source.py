"""The data source with the name "nats" in Spark.

Making of a JetStream stream that the sink can write exactly once.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

from pyspark_nats.errors import RefusedError
from pyspark_nats.gc_freeze import freeze_imported
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.connection_options import connection_options
from pyspark_nats.sink import sink_options
from pyspark_nats.sink.markers import PREFIX
from pyspark_nats.source import rows, source_options, typed_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

    from pyspark_nats.json_types import JsonObject
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


#: The stream is there with another configuration.
_NAME_IN_USE: Final = 10058


def create_stream(
    servers: str,
    name: str,
    subjects: str | Sequence[str],
    *,
    replicas: int = 1,
    storage: str = "file",
    max_age_s: float = 0,
    marker_prefix: str = PREFIX,
    **options: str,
) -> None:
    """Create a stream for both sides of the connector; one that is there like this stays.

    It takes atomic batches, and the subject of the sink's markers is among its own.

    Args:
        servers: as the option ``servers``.
        name: of the stream.
        subjects: its subjects, without that of the markers.
        replicas: servers that store it.
        storage: ``file`` or ``memory``.
        max_age_s: age at which messages expire, seconds; 0 for never.
        marker_prefix: as the sink's option ``markerPrefix``.
        options: further options of the connection, such as ``user`` and ``password``.

    Raises:
        RefusedError: the server refuses it, or has another stream of this name.
    """
    patterns = [subjects] if isinstance(subjects, str) else [*subjects]
    config: JsonObject = {
        "name": name,
        "subjects": [*patterns, f"{marker_prefix}.{name}.>"],
        "num_replicas": replicas,
        "storage": storage,
        "max_age": round(max_age_s * 1e9),
        "retention": "limits",
        "allow_atomic": True,
        "allow_direct": True,
    }
    payload = json.dumps(config).encode()
    with Connection(connection_options({"servers": servers, **options})) as connection:
        ask = (connection.api(f"STREAM.CREATE.{name}"), payload)
        try:
            connection.retry_while_unavailable(
                "creating a stream", lambda: connection.requests([ask])[0].json()
            )
        except RefusedError as error:
            if error.err_code != _NAME_IN_USE:
                raise
            raise RefusedError(
                f'JetStream stream "{name}" exists with another configuration',
                hint="Use it as it is, or edit it with 'nats stream edit': the sink needs "
                f'allow_atomic and the subject "{marker_prefix}.{name}.>".',
                err_code=_NAME_IN_USE,
            ) from error
