"""How fast the Spark connector is; ``python -m bench.connector --help`` says how to ask.

Machines differ and drift, so what counts is a ratio of two things measured in turns within one
run: what the connector does, and the limit, which is a plain program that does nothing else.
"""
