"""Environment that the instances of a connector host share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.connect.contract import Access
    from mesh.connect.spec import Spec
    from mesh.control.retries import Retries
    from mesh.model.cluster import InstanceStatus


@dataclass(frozen=True, slots=True)
class Environment:
    """Environment that the instances of a host share."""

    client: Client
    clock: Clock
    worker: str
    access: Access
    #: Reads the options by name of reference; MESH-C131 where that fails.
    references: Callable[[], Mapping[str, Mapping[str, str]]]
    retries: Callable[[], Retries]
    report: Callable[[InstanceStatus], None]
    #: Makes the source or sink of a declaration.
    make: Callable[[Spec], Any] = lambda spec: spec.load()()
