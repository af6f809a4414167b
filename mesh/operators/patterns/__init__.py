"""Patterns and sequences: partial matches of events that follow each other."""

from mesh.operators.patterns.chain import Pattern as Pattern
