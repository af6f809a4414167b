"""The shared query: many instances of a worker in one streaming query."""
