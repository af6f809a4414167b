"""A worker: an agent that heartbeats, and a Spark session that runs instances."""
