"""Bench of aggregations and on-demand queries."""
