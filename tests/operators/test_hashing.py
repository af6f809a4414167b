"""Hash tables under keys that are chosen to collide, and texts beyond 2 GB."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from mesh.operators.select import hashing
from mesh.operators.select.hashing import RowNumbers, TextNumbers
from tests.support.collisions import BITS, KEYS, colliding, longest_run, unscattered


def test_numbers_chosen_to_collide_do_not() -> None:
    values = np.array([unscattered(hashed) for hashed in colliding()], dtype=np.uint64)
    rows = RowNumbers(3)
    none = np.zeros(KEYS, dtype=np.bool_)
    assert rows.number_longs(values.view(np.int64), none).tolist() == list(range(KEYS))
    assert longest_run(rows._slots != 0) < 200


def test_texts_chosen_to_collide_do_not() -> None:
    words = []
    for hashed in colliding():
        mixed = unscattered(hashed) * pow(31, -1, BITS) % BITS
        words.append((unscattered(mixed) - 8 * 31) % BITS)
    data = b"".join(word.to_bytes(8, "big") for word in words)
    offsets: Any = np.arange(0, 8 * KEYS + 1, 8, dtype=np.int32)
    given = pa.StringArray.from_buffers(KEYS, pa.py_buffer(offsets), pa.py_buffer(data))
    texts = TextNumbers()
    assert texts.number(given).tolist() == list(range(KEYS))
    assert longest_run(texts._slots != 0) < 200


def _buffers(octets: bytes) -> list[Any]:
    """One that may be changed, one that may not, and one that begins at an odd octet."""
    return [
        pa.py_buffer(bytearray(octets)), pa.py_buffer(octets), pa.py_buffer(b"x" + octets)[1:],
    ]  # fmt: skip


def test_no_form_of_an_array_has_to_be_compiled_while_an_app_runs() -> None:
    """An app stood still for a second when texts came from a message for the first time."""
    offsets: Any = np.array([0, 2, 4, 6], dtype=np.int32)
    skip = np.zeros(3, dtype=np.bool_)
    whole: Any = np.array([5, 7, 5])
    for ends in _buffers(offsets.tobytes()):
        for letters in _buffers(b"abcdab"):
            given = pa.StringArray.from_buffers(3, ends, letters)
            assert TextNumbers().number(given).tolist() == [0, 1, 0]
    for buffer in _buffers(whole.tobytes()):
        values = np.frombuffer(buffer, dtype=np.int64)
        assert RowNumbers(2).number_longs(values, skip).tolist() == [0, 1, 0]
    many = pa.array([str(n) for n in range(600)])
    assert len(TextNumbers().number(many)) == 600
    for loop in ("_number_texts", "_number_longs", "_number_rows", "_enter_rows", "_enter_texts"):
        assert len(getattr(hashing, loop).signatures) <= 1, loop


def test_numbers_do_not_depend_on_the_seed(monkeypatch: Any) -> None:
    values = np.random.default_rng(1).integers(-50, 50, 500)
    keys = pa.array([str(value) for value in values])
    none = np.zeros(len(values), dtype=np.bool_)

    def numbers() -> tuple[list[int], list[int]]:
        return RowNumbers(2).number_longs(values, none).tolist(), TextNumbers().number(
            keys
        ).tolist()

    first = numbers()
    monkeypatch.setattr(hashing, "SEED", hashing.SEED ^ np.uint64(0x1234567890ABCDEF))
    assert numbers() == first


def test_texts_beyond_two_gigabytes_are_not_cut() -> None:
    texts = TextNumbers()
    start = 2**31 + 10
    # Zeros take no memory until they are written.
    texts._arena = np.zeros(start + 3, dtype=np.uint8)
    texts._arena[start:] = list(b"abc")
    texts._ends = np.array([0, start, start + 3], dtype=np.int64)
    texts._count = 2
    assert texts.take(pa.array([1, None])).to_pylist() == ["abc", None]
