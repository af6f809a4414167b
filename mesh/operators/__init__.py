"""Vectorised stateful operators, and the executor that drives those of one partition."""
