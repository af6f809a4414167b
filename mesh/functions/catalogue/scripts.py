"""Functions that an app defines itself: ``define function f[javascript] return int { .. }``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.functions.catalogue.model import ANY, Kind, Overload, Parameter, Signature

if TYPE_CHECKING:
    from mesh.model.types import AttributeType


def script_function(name: str, result: AttributeType) -> Signature:
    """The signature of a script function: any arguments, and the declared result type."""
    more = Parameter("argument", ANY)
    return Signature(name, Kind.SCALAR, (Overload((), result, more),))
