"""Speed of the Spark connector; ``python -m bench.connector --help`` lists the options.

Machines differ and drift, so each result is a ratio of two things measured in turns within one run:
the connector, and the limit, a plain program that does nothing else.
"""
