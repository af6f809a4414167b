"""Reading: options, offsets, plans of Spark partitions, fetching, and rows for Spark."""
