"""A NATS-native event mesh: SiddhiQL apps, split over workers, on JetStream and PySpark."""

from pyspark_nats.version import VERSION

__version__ = VERSION
