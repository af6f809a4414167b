"""What this version executes, of what the catalogue lists.

A name is here once every place that may meet it computes it: for a function the vector kernels,
for an aggregator the kernels of ``mesh.operators``.  A test holds this list and
those kernels together, as this layer stands below them.  Of the extensions every function runs.
"""

from __future__ import annotations

from typing import Final

RUNNING: Final = frozenset(
    {
        "UUID",
        "and",
        "avg",
        "cast",
        "coalesce",
        "convert",
        "count",
        "createSet",
        "currentTimeMillis",
        "default",
        "distinctCount",
        "eventTimestamp",
        "ifThenElse",
        "instanceOfBoolean",
        "instanceOfDouble",
        "instanceOfFloat",
        "instanceOfInteger",
        "instanceOfLong",
        "instanceOfString",
        "max",
        "maxForever",
        "maximum",
        "min",
        "minForever",
        "minimum",
        "or",
        "sizeOfSet",
        "stdDev",
        "sum",
        "unionSet",
    }
)
#: The same of stream functions.
RUNNING_STREAM_FUNCTIONS: Final = frozenset(
    {
        "json:tokenize",
        "json:tokenizeAsObject",
        "list:tokenize",
        "log",
        "map:tokenize",
        "pol2Cart",
        "str:tokenize",
    }
)
