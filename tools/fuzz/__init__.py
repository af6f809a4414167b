"""Differential fuzzing: random apps, answered here and by the reference engine."""
