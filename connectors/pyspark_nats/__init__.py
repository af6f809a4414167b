"""A Spark source and sink for NATS JetStream: ``spark.readStream.format("nats")``.

Spark discovers it without registration: the package name starts with ``pyspark_`` and the package
has a ``DefaultSource``.  A session whose Python does not have the package installed, as with
``spark-submit --py-files``, needs ``register``.  docs/connector.md lists the options.  Spark is
imported for that alone: the protocol, the decoder and the encoder run without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_nats.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_nats.data_source import create_stream

__all__ = ["DefaultSource", "create_stream", "register"]

__version__ = VERSION


def register(spark: SparkSession) -> None:
    """Make the format ``nats`` known to a session, wherever this package comes from."""
    spark.dataSource.register(__getattr__("DefaultSource"))


def __getattr__(name: str) -> Any:
    if name == "create_stream":
        from pyspark_nats.data_source import create_stream

        return create_stream
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pyspark_nats.data_source import NatsDataSource

    return NatsDataSource
