"""A source or sink of a group as it is opened: its declaration, mapper and options."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mesh.connect import registry
from mesh.connect.references import TYPE
from mesh.errors import MeshError
from mesh.model.secrets import filled, names_in, without
from mesh.plan.bind.group import bind_group
from mesh.plan.doors import door_of, make_mapper
from mesh.receiver.access import path_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.connect.spec import Spec
    from mesh.model.app import GroupSpec
    from mesh.model.types import StreamSchema
    from mesh.plan.doors import Door
    from mesh.receiver.environment import Environment


#: Options that are addresses; an instance shows the first that it has.
_ADDRESSES: Final = (
    "publisher.url", "receiver.url", "file.uri", "dir.uri", "destination", "bootstrap.servers",
    "url", "uri", "jdbc.url", "server.url", "bucket.name", "host", "topic",
)  # fmt: skip
_LOGIN: Final = re.compile(r"//.*@")


def endpoint_of(values: dict[str, Any]) -> str:
    """The address among the values of options, without a login."""
    for name in _ADDRESSES:
        if values.get(name):
            # Parameters of a database may be a login, too.
            return _LOGIN.sub("//", str(values[name]).partition("?")[0])
    return ""


@dataclass(frozen=True, slots=True)
class Opened:
    """A door of a group, with its declaration and mapper."""

    door: Door
    spec: Spec
    stream: StreamSchema
    mapper: Any

    @staticmethod
    def of_group(group: GroupSpec) -> Opened:
        """The only door of a group.

        Raises:
            MeshError: MESH-C130 for a connector that is not installed here.
        """
        bound = bind_group(group)
        ((name, annotation),) = [
            (stream, a)
            for stream, a in bound.stream_annotations
            if a.name.lower() in ("source", "sink")
        ]
        door = door_of(annotation)
        spec = registry.find(door.role, door.type)
        if spec is None or not spec.implementation:
            raise MeshError(
                "MESH-C130",
                f'connector "{door.connector}" is not installed on this worker',
                hint="Install its package there; 'mesh connectors' lists the installed ones.",
            )
        stream = bound.stream(name)
        return Opened(door, spec, stream, make_mapper(door, stream))

    def secrets(self, environment: Environment) -> frozenset[str]:
        """Names of the secrets that its options refer to."""
        given = [*self.door.options.values()]
        given += [text for options in self.door.destinations for text in options.values()]
        if self.door.ref:
            given += environment.references().get(self.door.ref, {}).values()
        return names_in(str(one) for one in given)

    def values(
        self,
        environment: Environment,
        own: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Values of the options: of the reference, then of the annotation, then ``own``.

        ``secrets`` has a value for each name of ``self.secrets``.

        Raises:
            MeshError: MESH-C131 for a reference that the node does not have, or invalid options;
                MESH-C132 for a file that an app may not name.
        """
        given = self._references(environment)
        written = {
            name: filled(str(text), secrets or {})
            for name, text in {**self.door.options, **(own or {})}.items()
        }
        for name, text in written.items():
            option = self.spec.option(name)
            if option is not None and option.is_file:
                path_of(environment.access, text)
        given = {name: filled(str(text), secrets or {}) for name, text in given.items()} | written
        return self._values(given)

    def endpoint(self, environment: Environment, own: Mapping[str, str] | None = None) -> str:
        """The address among the options, without a login and without any value of a secret."""
        given = {**self._references(environment), **self.door.options, **(own or {})}
        texts: dict[str, Any] = {option.name: option.default for option in self.spec.options}
        for name, text in given.items():
            option = self.spec.option(name)
            texts[option.name if option is not None else name] = without(str(text))
        return endpoint_of(texts)

    def _references(self, environment: Environment) -> Mapping[str, str]:
        """The options of the reference, as the node's file has them."""
        if not self.door.ref:
            return {}
        references = environment.references()
        found = dict(references.get(self.door.ref, {}))
        kind = found.pop(TYPE, self.door.type)
        if kind != self.door.type:
            raise MeshError(
                "MESH-C131",
                f'reference "{self.door.ref}" of {self.door.connector} is of type "{kind}"',
                hint="Write that type in the annotation, or name another reference.",
            )
        if self.door.ref not in references:
            raise MeshError(
                "MESH-C131",
                f'reference "{self.door.ref}" of {self.door.connector} is not on this worker',
                detail="Or it is not open to this app.",
                hint="Add it to the file of the setting receiver.refs_file; its key apps names "
                "patterns of apps that may use it.",
            )
        return found

    def _values(self, given: Mapping[str, str]) -> dict[str, Any]:
        try:
            values = self.spec.values(given)
        except ValueError as error:
            raise MeshError(
                "MESH-C131", f"{self.door.connector} can't be opened", detail=f"{error}."
            ) from error
        lower = {name.lower(): text for name, text in given.items()}
        reason = self.spec.objection(lower) if self.spec.objection is not None else None
        if reason is not None:
            raise MeshError("MESH-C131", f"{self.door.connector} can't be opened: {reason}")
        missing = [o.name for o in self.spec.options if o.is_required and not values[o.name]]
        if missing:
            raise MeshError(
                "MESH-C131",
                f'{self.door.connector} can\'t be opened: option "{missing[0]}" is missing',
                hint="Write it in the annotation or in the reference.",
            )
        return values
