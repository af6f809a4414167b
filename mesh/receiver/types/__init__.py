"""Implementations of the connectors of this project, one module each."""
