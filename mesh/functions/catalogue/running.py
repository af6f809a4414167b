"""Names of the catalogue that this version executes.

A name is listed here once all of its uses are implemented: for a function the vector kernels, for
an aggregator the kernels of ``mesh.operators``.  This layer can't import those, so a test compares
the list with the kernels.  All functions of extensions are implemented.
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
#: Stream functions that this version executes.
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
