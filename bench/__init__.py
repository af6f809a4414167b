"""Benchmarks: each prints its figures beside the limit that the same run found."""
