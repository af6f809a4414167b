"""How fast the operators are, beside the reference engine: ``python -m bench.operators``."""
