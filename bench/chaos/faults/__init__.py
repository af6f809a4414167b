"""Faults of a mesh under load, each a function over the scene."""
