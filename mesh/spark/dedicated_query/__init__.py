"""A dedicated query: one instance in a streaming query of its own."""
