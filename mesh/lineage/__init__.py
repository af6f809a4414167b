"""Recomputing an app's past from its log: lineage of an event, comparison of two apps' outputs."""
