"""Speed of the operators beside the reference engine: ``python -m bench.operators``."""
