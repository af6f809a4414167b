"""A group as Spark Structured Streaming queries."""
