"""Exclusion of imported modules from Python's garbage collection.

Spark's Python processes collect garbage after every task, over all objects: some hundred thousand
once pyarrow and pandas are imported.  That takes 20-80 ms of processor time, and a micro-batch is
four tasks in four processes.  It was most of the cost of a small batch.
"""

from __future__ import annotations

import gc
import sys

_modules_seen = 0


def freeze_imported() -> None:
    """Exclude objects imported so far from later collections; call it at the start of every task.

    Acts only if modules were imported since the last call, so the number of frozen objects stays
    bounded.  Temporary objects are frozen too, and never examined again.
    """
    global _modules_seen
    if len(sys.modules) > _modules_seen:
        _modules_seen = len(sys.modules)
        gc.freeze()
