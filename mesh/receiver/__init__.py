"""Connector host: the process of a worker that runs sources and sinks, without Spark."""
