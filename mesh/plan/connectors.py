"""``@source`` and ``@sink`` as values, checked against the declarations of connectors.

    @sink(type='http', publisher.url='http://h/x', @map(type='json', @payload('{{a}}')),
          @distribution(strategy='partitioned', partitionKey='a', @destination(..), ..))

The planner checks a connector, and the connector host opens it; both read it here.

Types of sources and sinks that a reference has: ``@source(ref='orders', @map(..))``.

The type decides about the options, the mapper and the worker, so it is put into the text before
that becomes an app.  The other options stay where they are, in the file of the node.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from mesh.connect import registry
from mesh.connect.places import TEMPLATE
from mesh.connect.spec import PROPERTY, Option, Role, Spec
from mesh.errors import MeshError, not_supported
from mesh.functions.cron import check_cron
from mesh.functions.patterns import compiled
from mesh.language.substitution import replaced
from mesh.language.syntax import find
from mesh.language.written import annotations_of
from mesh.model.types import AttributeType
from mesh.plan.diagnostics import nearest
from mesh.plan.nats_source import check_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mesh.errors import Position
    from mesh.language.syntax import Annotation
    from mesh.model.types import StreamSchema


#: Source of JetStream streams and subjects; query groups may read a stream themselves.
NATS: Final = "nats"
#: Begins the names of sources and sinks whose messages a service defines.
_GRPC: Final = "grpc"
_PASS_THROUGH: Final = "passThrough"
#: Begins the reason against an attribute of an option.
_NAMES: Final = "names attribute"
#: Option of a server: requests need a login.
_LOGIN: Final = "basic.auth.enabled"

_ROLES: Final = ("source", "sink")


@dataclass(frozen=True, slots=True)
class MapSpec:
    """A ``@map`` with its ``@attributes`` or ``@payload``."""

    type: str
    options: Mapping[str, str] = field(default_factory=dict)
    #: (attribute, path) pairs, or (None, path) by position; empty for the default mapping.
    attributes: tuple[tuple[str | None, str], ...] = ()
    #: (key or None, template) pairs; empty for the default mapping.
    payload: tuple[tuple[str | None, str], ...] = ()

    @property
    def properties(self) -> tuple[str, ...]:
        """Names of the transport properties that attributes are made of, in small letters."""
        paths = (text for _, text in self.attributes)
        return tuple(t[len(PROPERTY) :].lower() for t in paths if t.startswith(PROPERTY))


@dataclass(frozen=True, slots=True)
class Connector:
    """One ``@source`` or ``@sink``."""

    role: Role
    type: str
    #: As written, without ``type`` and ``ref``.
    options: Mapping[str, str]
    #: Name of options in the node's own file; empty for none.
    ref: str
    map: MapSpec
    #: Name and options of the distribution strategy; empty for a single destination.
    strategy: str
    strategy_options: Mapping[str, str]
    #: Options of each ``@destination``, which take precedence over the sink's.
    destinations: tuple[Mapping[str, str], ...]
    position: Position

    @property
    def kind(self) -> str:
        """``role name`` of the connector that a worker needs."""
        return f"{self.role} {self.type}"

    @property
    def is_native(self) -> bool:
        """Whether query groups read it themselves, as they read channels.

        That is a JetStream stream of the mesh's own servers whose messages need no mapper.
        """
        names = {name.lower() for name in self.options}
        return (
            self.role is Role.SOURCE
            and self.type == NATS
            and "stream" in names
            and names <= {"stream", "destination"}
            and not self.ref
            and self.map in (MapSpec(_PASS_THROUGH), MapSpec("json"))
        )


def connector_of(annotation: Annotation) -> Connector:
    """Read a ``@source`` or ``@sink``; its types and options may be unknown."""
    role = Role.SOURCE if annotation.name.lower() == "source" else Role.SINK
    options = _options(annotation)
    kind = options.pop("type", "")
    spread = find(annotation.annotations, "distribution")
    strategy = _options(spread) if spread is not None else {}
    destinations = [
        _options(a)
        for a in (spread.annotations if spread is not None else ())
        if a.name.lower() == "destination"
    ]
    return Connector(
        role,
        kind,
        options,
        options.pop("ref", ""),
        _map_of(find(annotation.annotations, "map")),
        strategy.pop("strategy", ""),
        strategy,
        tuple(destinations),
        annotation.position,
    )


def _map_of(annotation: Annotation | None) -> MapSpec:
    if annotation is None:
        return MapSpec(_PASS_THROUGH)
    options = _options(annotation)
    kind = options.pop("type", "")
    attributes = find(annotation.annotations, "attributes")
    payload = find(annotation.annotations, "payload")
    return MapSpec(
        kind,
        options,
        attributes.elements if attributes is not None else (),
        payload.elements if payload is not None else (),
    )


def _options(annotation: Annotation) -> dict[str, str]:
    """Options by their names; ``type``, ``ref`` and ``strategy`` in lower case."""
    options = {}
    for key, text in annotation.elements:
        if key is not None:
            lower = key.lower()
            options[lower if lower in ("type", "ref", "strategy") else key] = text
    return options


def address_of(connector: Connector, app: str, stream: str) -> str:
    """``host:port/path`` that it binds; empty for none, for any free port, and for a reference.

    Args:
        connector: the connector.
        app: the name of the app, for a default.
        stream: the name of the stream, for a default.
    """
    spec = registry.find(connector.role, connector.type)
    option = spec.option(spec.address) if spec is not None and spec.address else None
    if option is None:
        return ""
    address = next((v for k, v in connector.options.items() if k.lower() == option.name), None)
    if address is None and connector.ref:
        return ""
    text = address or (option.default or "").replace("{app}", app).replace("{stream}", stream)
    try:
        parts = urlsplit(text)
        has_port = bool(parts.port)
    except ValueError:
        # It is refused with its options.
        return ""
    return f"{parts.netloc}{parts.path or '/'}" if has_port else ""


def check_connector(connector: Connector, stream: StreamSchema) -> None:
    """Refuse a connector that can't be opened as written.

    Args:
        connector: of a stream that the engine accepts.
        stream: the stream that has it.

    Raises:
        MeshError: MESH-P900 for a connector that is not built; MESH-P230 for an option that it
            does not have, MESH-P231 for one that is missing, MESH-P232 for an invalid value.
    """
    attributes = stream.names
    spec = _spec(connector.role, connector.type, connector.position)
    if not connector.ref:
        for endpoint in connector.destinations or ({},):
            reason = spec.reason_against({**connector.options, **endpoint})
            _refuse(spec, reason, connector.position)
    _check_login(spec, connector)
    mapper = Role.SOURCE_MAPPER if connector.role is Role.SOURCE else Role.SINK_MAPPER
    map_spec = _spec(mapper, connector.map.type, connector.position)
    if connector.strategy:
        strategy = _spec(Role.DISTRIBUTION, connector.strategy, connector.position)
        check_options(strategy, connector.strategy_options, attributes, connector.position)
        for number, destination in enumerate(connector.destinations, 1):
            # Options of the reference are known to the node only.
            check_options(
                spec, {**connector.options, **destination}, attributes, connector.position,
                is_whole=not connector.ref, where=f" of destination {number}",
            )  # fmt: skip
    else:
        check_options(
            spec, connector.options, attributes, connector.position, is_whole=not connector.ref
        )
    check_options(map_spec, connector.map.options, attributes, connector.position)
    try:
        make_mapper(connector, stream)
    except ValueError as error:
        hint = f"'mesh connectors {connector.map.type}' lists its options."
        if any(one.type is AttributeType.OBJECT for one in stream.attributes):
            hint = (
                f"Give the {connector.role} to a stream of its own with texts, of which "
                "json:toObject(a) makes objects, or which json:toString(a) makes of them."
            )
        raise MeshError(
            "MESH-P232",
            f'@map of {connector.role} "{connector.type}" is invalid: {error}',
            hint=hint,
            position=connector.position,
        ) from error
    _check_properties(spec, connector)
    if spec.name == NATS and spec.role is Role.SOURCE:
        check_names(connector.options, connector.position)
    if spec.name.startswith(_GRPC) and connector.map.type == "protobuf":
        # Fields that are numbered by the stream's attributes would be those of another message.
        is_defined = {"proto", "descriptor"} & {name.lower() for name in connector.map.options}
        reason = None if is_defined else "its mapper protobuf needs the option proto or descriptor"
        _refuse(
            spec, reason, connector.position, "They have the messages of the service's .proto file."
        )
    if spec.name == "file" and spec.role is Role.SOURCE and not connector.ref:
        _check_either(spec, connector.options, ("file.uri", "dir.uri"), connector.position)
        _check_patterns(spec, connector.options, connector.position)
        if times := connector.options.get("cron.expression"):
            check_cron(times, connector.position)


def make_mapper(connector: Connector, stream: StreamSchema) -> Any:
    """The mapper of a connector, of the kind of its role.

    Raises:
        ValueError: the mapping is invalid.
    """
    is_source = connector.role is Role.SOURCE
    spec = registry.find(Role.SOURCE_MAPPER if is_source else Role.SINK_MAPPER, connector.map.type)
    assert spec is not None, "checked by the planner"
    arguments = connector.map.type, spec.values(connector.map.options)
    if not is_source:
        return spec.load()(*arguments, connector.map.payload, stream)
    source = registry.find(Role.SOURCE, connector.type)
    rows = {"are_rows": True} if source is not None and source.reads_rows else {}
    return spec.load()(*arguments, connector.map.attributes, stream, **rows)


def _spec(role: Role, name: str, position: Position) -> Spec:
    spec = registry.find(role, name)
    if spec is None:
        names = registry.of_role(role)
        raise not_supported(
            f'{role} "{name}"',
            position,
            hint=f"{str(role).capitalize()}s that run: {', '.join(names)}; see docs/connectors.md.",
        )
    return spec


def check_options(
    spec: Spec,
    options: Mapping[str, str],
    attributes: Sequence[str],
    position: Position,
    *,
    is_whole: bool = True,
    where: str = "",
) -> None:
    """Check the options of a connector.

    Args:
        spec: the connector.
        options: as written.
        attributes: of the stream.
        position: of the annotation.
        is_whole: whether a required option can't be given elsewhere.
        where: after the connector's name in messages.

    Raises:
        MeshError: as ``check_connector``, for options.
    """
    of = f'{spec.role} "{spec.name}"{where}'
    for name, value in options.items():
        option = spec.option(name)
        if option is None:
            if spec.is_open:
                continue
            names = [one.name for one in spec.options if not one.is_ignored]
            raise MeshError(
                "MESH-P230",
                f'{of} has no option "{name}"',
                hint=nearest(name, names) or f"'mesh connectors {spec.name}' lists its options.",
                position=position,
            )
        reason = option.objection(value) or _against_attributes(
            value, attributes, is_name=option.is_attribute, is_dynamic=option.is_dynamic
        )
        if reason is not None and not option.is_ignored:
            is_shown = not option.is_secret and not reason.startswith(_NAMES)
            shown = f', not "{value}"' if is_shown else ""
            raise MeshError(
                "MESH-P232",
                f'option "{option.name}" of {of} {reason}{shown}',
                hint=_hint_of(option, value, attributes) or option.doc or None,
                position=position,
            )
    if not is_whole:
        return
    option_names = {option.name for name in options if (option := spec.option(name)) is not None}
    for option in spec.options:
        if option.is_required and option.name not in option_names:
            raise MeshError(
                "MESH-P231",
                f'{of} needs the option "{option.name}"',
                hint=option.doc or None,
                position=position,
            )


def _against_attributes(
    value: str, attributes: Iterable[str], *, is_name: bool, is_dynamic: bool
) -> str | None:
    names = set(attributes)
    if is_name:
        return None if value in names else "names an attribute of the stream"
    named: list[str] = TEMPLATE.findall(value)
    if named and not is_dynamic:
        return "is the same for all events and holds no {{attribute}}"
    unknown = [name for name in named if name not in names]
    return f'{_NAMES} "{unknown[0]}", which the stream does not have' if unknown else None


def _hint_of(option: Option, value: str, attributes: Sequence[str]) -> str | None:
    """The nearest choice or attribute to a wrong value."""
    if option.choices:
        return nearest(value.lower(), option.choices)
    named = TEMPLATE.findall(value) if option.is_dynamic else []
    names = [value] if option.is_attribute else named
    unknown = next((name for name in names if name not in attributes), None)
    return nearest(unknown, attributes) if unknown is not None else None


def _check_properties(spec: Spec, connector: Connector) -> None:
    """Refuse names of transport properties that the source does not give."""
    if connector.role is not Role.SOURCE or "*" in spec.properties:
        return
    properties = {name.lower() for name in spec.properties}
    for _, text in connector.map.attributes:
        name = text.removeprefix(PROPERTY)
        if text.startswith(PROPERTY) and name.lower() not in properties:
            hint = f"It has {', '.join(spec.properties)}." if properties else "It has none."
            raise MeshError(
                "MESH-P232",
                f'{spec.role} "{spec.name}" has no property "{name}" for {text}',
                hint=nearest(name, spec.properties) or hint,
                position=connector.position,
            )


def _check_login(spec: Spec, connector: Connector) -> None:
    """Refuse the login of a server that would take events in without it."""
    has_switch = spec.role is Role.SOURCE and spec.option(_LOGIN) is not None
    names = {name.lower() for name in connector.options}
    if has_switch and not connector.ref and _LOGIN not in names:
        login = sorted(names & {"basic.auth.username", "basic.auth.password"})
        reason = f"{login[0]} has no effect without {_LOGIN}" if login else None
        _refuse(spec, reason, connector.position, f"Write {_LOGIN}='true' to require it.")


def _check_patterns(spec: Spec, options: Mapping[str, str], position: Position) -> None:
    reason = None
    try:
        for name in ("begin.regex", "end.regex"):
            compiled(options.get(name) or "")
    except ValueError as error:
        reason = str(error)
    _refuse(spec, reason, position)


def _refuse(spec: Spec, reason: str | None, position: Position, hint: str | None = None) -> None:
    if reason:
        message = f'{spec.role} "{spec.name}": {reason}'
        raise MeshError("MESH-P231", message, hint=hint, position=position)


def _check_either(
    spec: Spec, options: Mapping[str, str], names: tuple[str, str], position: Position
) -> None:
    one, other = names
    count = sum(name in options for name in names)
    if count != 1:
        what = "has both options" if count else "needs one of the options"
        raise MeshError(
            "MESH-P231",
            f'{spec.role} "{spec.name}" {what} "{one}" and "{other}"',
            hint=f"Leave {other} out, or {one}." if count else None,
            position=position,
        )


def needs_types(text: str) -> bool:
    """Whether a text may have a reference without a type; most have no reference."""
    return "ref" in text.lower() and any(_names(text))


def with_types(text: str, types: Mapping[str, str]) -> str:
    """The text with the type of each reference that has one in ``types``, by name."""
    edits = [
        (opened, opened, f"type='{types[name]}', ")
        for opened, name in (_names(text) if "ref" in text.lower() else ())
        if types.get(name)
    ]
    return replaced(text, edits) if edits else text


def _names(text: str) -> list[tuple[int, str]]:
    """Place and name of each reference without a type."""
    return [
        (one.opened, name)
        for one in annotations_of(text)
        if one.name.lower() in _ROLES
        and one.opened is not None
        and one.get("type") is None
        and (name := one.get("ref")) is not None
    ]
