"""Cases run here and through Spark, as a program: ``python -m tools.conformance``.

    python -m tools.conformance CASES.jsonl OUT.jsonl [--engine direct] [--jobs N]

reads cases and writes answers, JSON lines both, in the format of the program that runs the engine,
so the two answers can be compared.  ``mesh.testing.conformance`` says what a case is.
"""
