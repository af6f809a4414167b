"""Arrow's compute functions and arrays, typed as loosely as their callers need.

The third-party stubs have a dozen overloads for each function, and reject most valid calls.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

#: An array of values of any type.
ArrowArray: TypeAlias = "pa.Array[Any]"
#: The same in parts: a column of a table.
ArrowChunks: TypeAlias = "pa.ChunkedArray[Any]"
#: ``pyarrow.compute``.
kernels: Any = pyarrow.compute
#: ``pyarrow``, for functions without stubs.
arrow: Any = pa
#: Up to so many rows, a loop over them costs less than the calls of kernels.
FEW: Final = 32


def concat_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Join batches with the same schema into one; needs at least one."""
    whole: pa.RecordBatch = arrow.concat_batches(batches)
    return whole


def int64s(texts: Array) -> npt.NDArray[np.int64]:
    """Decimal texts without nulls as numbers; ArrowInvalid if one is not a number."""
    return np.asarray(kernels.cast(texts, pa.int64()).to_numpy(zero_copy_only=False), np.int64)


def sizes_of(values: Array) -> npt.NDArray[np.int64]:
    """int64[n], octets of each value of a column of type string or binary; 0 for a null."""
    bounds = np.frombuffer(values.buffers()[1], np.int32)[values.offset :][: len(values) + 1]
    return (bounds[1:] - bounds[:-1]).astype(np.int64)


def ipc_stream(rows: pa.RecordBatch | pa.Table, compression: Any = None) -> bytes:
    """Rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write(rows)
    return sink.getvalue().to_pybytes()


def constant(text: str, count: int) -> Any:
    """``count`` times ``text``, string."""
    return _few(text).slice(0, count) if count <= FEW else pa.repeat(pa.scalar(text), count)


@lru_cache(maxsize=1024)
def _few(text: str) -> Any:
    """The text as often as in the longest run of few rows: each run needs the same again."""
    return pa.repeat(pa.scalar(text), FEW)


@lru_cache(maxsize=FEW + 1)
def few_nulls(count: int) -> ArrowArray:
    """``count`` nulls, int64, up to ``FEW``."""
    return pa.nulls(count, pa.int64())


def rows_at(places: npt.NDArray[np.int64]) -> Any:
    """Row numbers as ``take`` needs them."""
    return pa.array(places)


if TYPE_CHECKING:
    import numpy.typing as npt

    #: An Arrow array; ``Any`` for the same reason.
    Array = Any
    #: An Arrow type; its class in the stubs lacks the attributes of its kinds.
    DataType = Any
