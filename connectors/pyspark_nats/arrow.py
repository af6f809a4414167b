"""Arrow's compute functions and arrays, as loosely typed as they are called here.

The third-party stubs know each function by a dozen overloads and reject most honest calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

#: ``pyarrow.compute``.
kernels: Any = pyarrow.compute
#: ``pyarrow``, for what the stubs do not know.
arrow: Any = pa


def concat_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of several with the same schema; at least one."""
    whole: pa.RecordBatch = arrow.concat_batches(batches)
    return whole


def int64s(texts: Array) -> npt.NDArray[np.int64]:
    """Decimal texts without nulls as numbers; ArrowInvalid when one is no number."""
    return np.asarray(kernels.cast(texts, pa.int64()).to_numpy(zero_copy_only=False), np.int64)


def rows_at(places: npt.NDArray[np.int64]) -> Any:
    """Row numbers as ``take`` needs them."""
    return pa.array(places)


if TYPE_CHECKING:
    import numpy.typing as npt

    #: An Arrow array; ``Any`` for the same reason.
    Array = Any
    #: An Arrow type; its class in the stubs has not what its kind has.
    DataType = Any
