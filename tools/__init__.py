"""Development tooling: documents made from the code, fuzzing, and recording of answers and states.

It is not in the wheel.  It may import mesh and the connector; they never import it.
"""
