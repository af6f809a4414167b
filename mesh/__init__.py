"""A NATS-native event mesh: SiddhiQL apps, split over workers, on JetStream and PySpark."""

__version__ = "0.1.0"
