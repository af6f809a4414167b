"""The numbers that types hold: 32-bit floats, and whole numbers within bounds."""

from __future__ import annotations

import struct
from typing import Final

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


def round_to_float(value: float) -> float:
    """The nearest 32-bit float; OverflowError beyond their range."""
    return float(struct.unpack("f", struct.pack("f", value))[0])
