"""Stream functions of the reference engine (Siddhi 5.1.7): ``S#name(..)``."""

from __future__ import annotations

from typing import Final

from mesh.functions.catalogue.model import (
    BOOL,
    CONSTANT,
    DOUBLE,
    STRING,
    Kind,
    Overload,
    Parameter,
    Signature,
)
from mesh.model.types import Attribute, AttributeType

_PRIORITIES: Final = ("info", "debug", "warn", "fatal", "error", "off", "trace")

_MESSAGE: Final = Parameter("log.message", STRING)
_LOGGED: Final = Parameter("is.event.logged", BOOL, CONSTANT, default="true")
_PRIORITY: Final = Parameter("priority", STRING, CONSTANT, choices=_PRIORITIES, default="INFO")
_THETA: Final = Parameter("theta", DOUBLE)
_RHO: Final = Parameter("rho", DOUBLE)
_X, _Y, _Z = (Attribute(name, AttributeType.DOUBLE) for name in "xyz")

_ENGINE: Final = (
    Signature(
        "log",
        Kind.STREAM_PROCESSOR,
        tuple(
            Overload(parameters)
            for parameters in (
                (),
                (_MESSAGE,),
                (_LOGGED,),
                (_MESSAGE, _LOGGED),
                (_PRIORITY, _MESSAGE),
                (_PRIORITY, _MESSAGE, _LOGGED),
            )
        ),
        runs=True,
    ),
    Signature(
        "pol2Cart",
        Kind.STREAM_FUNCTION,
        (
            Overload((_THETA, _RHO), adds=(_X, _Y)),
            Overload((_THETA, _RHO, Parameter("z", DOUBLE)), adds=(_X, _Y, _Z)),
        ),
        runs=True,
    ),
)

#: Stream functions by name.  Those of kind STREAM_PROCESSOR are invalid in patterns and sequences;
#: the attributes that one adds must have new names.
STREAM_FUNCTIONS: Final = {signature.name: signature for signature in _ENGINE}
