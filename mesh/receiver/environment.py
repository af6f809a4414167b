"""Environment that the instances of a connector host share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mesh.connect.references import open_references
from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.connect.contract import NodeAccess
    from mesh.connect.spec import Spec
    from mesh.control.retries import Retries
    from mesh.model.cluster import InstanceStatus


async def no_secrets(names: Collection[str], app: str = "") -> Mapping[str, str]:
    """No secrets at all: MESH-C142."""
    name = min(names)
    raise MeshError("MESH-C142", f'secret "{name}" has no value')


@dataclass(frozen=True, slots=True)
class HostEnvironment:
    """Environment that the instances of a host share."""

    client: Client
    clock: Clock
    worker: str
    access: NodeAccess
    #: Reads the options by name of reference; MESH-C131 where that fails.
    references: Callable[[], Mapping[str, Mapping[str, str]]]
    retries: Callable[[], Retries]
    report: Callable[[InstanceStatus], None]
    #: Reads secrets by name for an app; MESH-C140 to MESH-C142 where that fails.
    secrets: Callable[[Collection[str], str], Awaitable[Mapping[str, str]]] = no_secrets
    #: The app whose environment this is; empty for none.
    app: str = ""
    #: Makes the source or sink of a declaration.
    make: Callable[[Spec], Any] = lambda spec: spec.load()()

    def of_app(self, app: str, reads: Collection[str]) -> HostEnvironment:
        """The environment of an app's instances: what this app may use of the node.

        Args:
            app: its name.
            reads: the JetStream streams of others in the mesh that it may read.
        """
        return replace(
            self,
            access=replace(self.access, reads=tuple(reads)),
            references=lambda: open_references(self.references(), app),
            app=app,
        )
