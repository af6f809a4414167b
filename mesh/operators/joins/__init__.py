"""Joins of two inputs: of windows, by what they put out; of tables and others, event by event."""
