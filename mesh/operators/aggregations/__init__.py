"""Incremental aggregations: values of calendar buckets of several durations, by group."""
