"""A Spark source and sink for NATS JetStream: ``spark.readStream.format("nats")``.

Spark discovers it without registration: the package name starts with ``pyspark_`` and the package
has a ``DefaultSource``.  docs/connector.md lists the options.
"""

from __future__ import annotations

from pyspark_nats.data_source import NatsDataSource as DefaultSource

__all__ = ["DefaultSource"]
