"""Measurements of the event's way through a mesh: latency, rates, and what the processes need."""
