"""``unitconversion:`` functions: a value times the exact ratio of two units, as a double."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mesh.functions import kernels
from mesh.functions.catalogue import DOCUMENTED_FUNCTIONS
from mesh.functions.catalogue.conversions import UNIT_RATIOS
from mesh.functions.vectors import Vector
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from mesh.functions.rows import Function, Rows


def _conversion(ratio: Fraction) -> Function:
    def apply(arguments: Sequence[Vector], type: AttributeType, rows: Rows) -> Vector:
        value = kernels.cast(arguments[0], AttributeType.DOUBLE)
        with np.errstate(all="ignore"):
            results = value.values * float(ratio.numerator) / float(ratio.denominator)
        return Vector(type, results, value.nulls)

    return apply


FUNCTIONS: dict[str, Function] = {
    DOCUMENTED_FUNCTIONS[f"unitconversion:{name}"].bound_name: _conversion(ratio)
    for name, ratio in UNIT_RATIOS.items()
}
