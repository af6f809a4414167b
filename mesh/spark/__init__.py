"""Spark Structured Streaming queries that run the groups of apps."""
