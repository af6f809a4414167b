"""A Spark source and sink for NATS JetStream: ``spark.readStream.format("nats")``.

Spark finds it by itself, because the module's name starts with ``pyspark_`` and it has a
``DefaultSource``.  docs/connector.md lists the options.
"""

from __future__ import annotations

from pyspark_nats.data_source import NatsDataSource as DefaultSource

__all__ = ["DefaultSource"]
