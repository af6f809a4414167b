"""Numbers as Java writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import Any


def java_text(value: np.floating[Any] | float) -> str:
    """A number as Java writes it: plain from 0.001 to below ten million, else ``1.5E-7``.

    The digits are the fewest that read back as the same number; Java before 19 sometimes writes
    more.
    """
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    size = abs(float(value))
    if size == 0 or 1e-3 <= size < 1e7:
        return np.format_float_positional(value, unique=True, trim="0")
    mantissa, exponent = np.format_float_scientific(value, unique=True, trim="0").split("e")
    if mantissa.endswith(".0"):
        # Two digits are shown always, and then the nearest two: 4.9E-324.
        mantissa, exponent = f"{float(value):.1e}".split("e")
    return f"{mantissa}E{int(exponent)}"
