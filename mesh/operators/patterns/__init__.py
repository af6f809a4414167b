"""Patterns and sequences: partial matches of events that follow each other.

``operator`` runs every shape on one native machine (``nfa``).  Conditions are compiled to programs
of the machine (``conditions``, ``program``); conditions on several events that no program can
compute are evaluated in Python for many matches and events at once (``evaluation``).
"""

from mesh.operators.patterns.operator import PatternOperator as PatternOperator
