"""A Spark source and sink for NATS JetStream: ``spark.readStream.format("nats")``.

Spark discovers it without registration: the package name starts with ``pyspark_`` and the package
has a ``DefaultSource``.  docs/connector.md lists the options.  Spark is imported for that alone:
the protocol, the decoder and the encoder run without it.
"""

from __future__ import annotations

from typing import Any

from pyspark_nats.version import VERSION

__all__ = ["DefaultSource"]

__version__ = VERSION


def __getattr__(name: str) -> Any:
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pyspark_nats.data_source import NatsDataSource

    return NatsDataSource
