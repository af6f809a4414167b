"""Dataflow graph of an app: nodes joined by channels, and the drivers that execute it."""
