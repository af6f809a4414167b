#!/usr/bin/env bash
# Guess: a Numba function over `np.frombuffer` of an Arrow column is compiled once. The type of the column is the same,
# and a buffer of Arrow never changes.
#
# What happens: the array has the traits of whoever made the buffer. From `pa.array` it may be written; from an IPC
# stream that is read out of bytes it may not. Numba 0.68 has a type for each, and compiles again, at the call; so one
# app, or one test, that makes its columns itself proves nothing about the columns that come in messages.
#
# Why it matters here: a loop over events stood still for a second when the first ones came over the network, though
# it had been compiled ahead on others of the same schema. Loops of the mesh name the wider one of these types.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check numba==0.68.1 numpy==2.4.6 pyarrow==26.0.1 2>/dev/null
"$work/venv/bin/python" - <<'PY'
import time
from importlib.metadata import version

import numba
import numpy as np
import pyarrow as pa


@numba.njit
def total(values):
    found = 0
    for value in values:
        found += value
    return found


def read(octets):
    return pa.ipc.open_stream(octets).read_all().column("n").chunk(0)


made = pa.array([1, 2, 3], pa.int64())
sink = pa.BufferOutputStream()
with pa.ipc.new_stream(sink, pa.schema([("n", pa.int64())])) as writer:
    writer.write_batch(pa.record_batch([made], names=["n"]))
stream = sink.getvalue().to_pybytes()
columns = {
    "pa.array": made,
    "IPC out of bytes": read(stream),
}
print(*(f"{name} {version(name)}" for name in ("numba", "numpy", "pyarrow")))
forms = []
for name, column in columns.items():
    array = np.frombuffer(column.buffers()[1], np.int64)[:3]
    before_s = time.perf_counter()
    assert total(array) == 6
    took_ms = (time.perf_counter() - before_s) * 1000
    forms.append(array.flags.writeable)
    print(f"{name}: writeable {forms[-1]}; compiled forms {len(total.signatures)}, the call took {took_ms:.0f} ms")
assert forms == [True, False], forms
assert len(total.signatures) == 2, total.signatures
PY
