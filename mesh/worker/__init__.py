"""A worker: an agent that heartbeats, and a Spark session that runs instances."""

from mesh.processes.imports import import_nats

# Before a module of this package imports the client.
import_nats()
