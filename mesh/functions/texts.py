"""Numbers in Java's notation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import Any


def java_text(value: np.floating[Any] | float) -> str:
    """A number as Java formats it: plain from 0.001 to below ten million, else ``1.5E-7``.

    The digits are the fewest that parse to the same number; Java before 19 sometimes has more.
    """
    number = float(value)
    size = abs(number)
    if size == 0 or 1e-3 <= size < 1e7:
        # For a float the digits of the float count, not those of its double representation.
        return str(value) if isinstance(value, np.float32) else repr(number)
    if number != number:
        return "NaN"
    if size == math.inf:
        return "Infinity" if number > 0 else "-Infinity"
    mantissa, exponent = np.format_float_scientific(value, unique=True, trim="0").split("e")
    if mantissa.endswith(".0"):
        # At least two digits are shown, and then the nearest two: 4.9E-324.
        mantissa, exponent = f"{number:.1e}".split("e")
    return f"{mantissa}E{int(exponent)}"
