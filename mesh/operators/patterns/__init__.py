"""Patterns and sequences: partial matches of events that follow each other.

``operator`` runs every shape on one native machine (``nfa``).  Conditions are compiled to programs
of the machine (``conditions``, ``program``); what no program can compute of several events is
evaluated in Python for many matches and events at once (``evaluation``).
"""

from mesh.operators.patterns.operator import PatternOperator as PatternOperator
