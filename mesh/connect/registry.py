"""Discovery of connectors: entry points of the group ``mesh.connectors``.

The value of an entry point is a module with ``SPECS``.  Ours are declared in the same way in
``pyproject.toml``; they are also listed here, so that a checkout knows them before it is installed
again.
"""

from __future__ import annotations

import importlib
import logging
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Final

from mesh.connect.spec import Role, Spec
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

log = logging.getLogger(__name__)

GROUP: Final = "mesh.connectors"
#: The entry points of this project; a test compares them with ``pyproject.toml``.
ENTRY_POINTS: Final[Mapping[str, str]] = {
    "mesh": "mesh.connect.builtin",
    "mesh-brokers": "mesh.connect.brokers",
    "mesh-databases": "mesh.connect.databases",
    "mesh-maps": "mesh.connect.maps",
    "mesh-web": "mesh.connect.web",
}


@cache
def builtin_specs() -> tuple[Spec, ...]:
    """The connectors of this project."""
    return tuple(spec for module in ENTRY_POINTS.values() for spec in _specs_of(module))


@cache
def specs() -> Mapping[tuple[Role, str], Spec]:
    """Every installed connector by role and name; ours take precedence over others."""
    connectors = {(spec.role, spec.name): spec for spec in builtin_specs()}
    others = dict.fromkeys(point.value for point in metadata.entry_points(group=GROUP))
    for module in others:
        for spec in () if module in ENTRY_POINTS.values() else _specs_of(module):
            if connectors.setdefault((spec.role, spec.name), spec) is not spec:
                extra = fields(connector=spec.name, module=module)
                log.warning("connector is declared twice, the first one counts", extra=extra)
    return connectors


def _specs_of(module: str) -> Iterable[Spec]:
    try:
        return tuple(importlib.import_module(module.partition(":")[0]).SPECS)
    # The module is of another package; its failure must not stop the others.
    except Exception as error:
        extra = fields(module=module, error=error)
        log.warning("connectors of a module can't be read", extra=extra)
        return ()


def find(role: Role, name: str) -> Spec | None:
    """The connector of this role and name, which is case-sensitive; None if it is not installed."""
    return specs().get((role, name))


def of_role(role: Role) -> dict[str, Spec]:
    """The connectors of a role by name."""
    return {name: spec for (kind, name), spec in specs().items() if kind is role}


def transports() -> tuple[str, ...]:
    """``role name`` of each source and sink whose library is installed, for the heartbeat."""
    kinds = (Role.SOURCE, Role.SINK)
    return tuple(
        sorted(
            f"{role} {name}"
            for (role, name), spec in specs().items()
            if role in kinds and spec.is_installed()
        )
    )
