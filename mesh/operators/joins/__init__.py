"""Joins of two inputs: of windows, by their output; of tables and others, event by event."""
