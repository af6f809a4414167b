"""What this version executes, of what the catalogue lists.

A name is here once every place that may meet it computes it: for a function the vector kernels and
the Spark columns, for an aggregator the kernels of ``mesh.operators``.  A test holds this list and
those kernels together, as this layer stands below them.
"""

from __future__ import annotations

from typing import Final

RUNNING: Final = frozenset(
    {
        "avg",
        "coalesce",
        "count",
        "default",
        "ifThenElse",
        "max",
        "maximum",
        "min",
        "minimum",
        "stdDev",
        "sum",
    }
)
#: The same of windows, whose names are their own.
RUNNING_WINDOWS: Final = frozenset({"time"})
