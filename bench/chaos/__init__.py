"""Faults under load: each output row beside those of a run without faults (``make chaos``)."""
