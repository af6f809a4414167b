"""Stream functions of the reference engine (Siddhi 5.1.7): ``S#name(..)``."""

from __future__ import annotations

from typing import Final

from mesh.functions.catalogue.model import NameKind
from mesh.functions.catalogue.notation import signatures

_PROCESSORS: Final = """
# Write each event to the log of the instance.
log()
log(log.message string)
log(is.event.logged bool constant)
log(log.message string, is.event.logged bool constant)
log(priority string constant =info|debug|warn|fatal|error|off|trace, log.message string)
log(priority string constant =info|debug|warn|fatal|error|off|trace, log.message string,
    is.event.logged bool constant)
"""
_FUNCTIONS: Final = """
# Add the Cartesian coordinates of polar ones.
pol2Cart(theta double, rho double) -> x double, y double
pol2Cart(theta double, rho double, z double) -> x double, y double, z double
"""

#: Stream functions by name.  Those of kind STREAM_PROCESSOR are invalid in patterns and sequences;
#: the attributes that one adds must have new names.
STREAM_FUNCTIONS: Final = signatures(
    _PROCESSORS, NameKind.STREAM_PROCESSOR, runs=True
) | signatures(_FUNCTIONS, NameKind.STREAM_FUNCTION, runs=True)
