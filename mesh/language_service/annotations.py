"""Annotations with their options: those of mesh and Siddhi here, of connectors from their specs.

Names of attributes in annotations: keys, templates, mappings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.connect import registry
from mesh.connect.spec import Kind, Option, Role
from mesh.functions.catalogue import EXTENSIONS
from mesh.functions.catalogue import ExtensionRole as ExtensionRole
from mesh.language.tokens import TokenKind
from mesh.model.app import GroupMode
from mesh.model.stored import CachePolicy, StoreKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mesh.connect.spec import Spec
    from mesh.errors import Position
    from mesh.language.cursor import Cursor


APP, STREAM, TABLE, WINDOW = "app", "stream", "table", "window"
AGGREGATION, QUERY, PARTITION = "aggregation", "query", "partition"
_STREAMS: Final = (STREAM,)
_GROUPED: Final = (QUERY, PARTITION, AGGREGATION)

#: Annotations whose texts are names of attributes.
LISTS: Final = ("primarykey", "index", "partitionbyid")
#: Keys whose text is the name of an attribute.
_KEYS: Final = ("partitionkey",)
_TEMPLATE: Final = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True)
class AnnotationKind:
    """An annotation that has a meaning."""

    name: str
    doc: str
    #: The elements that it precedes; or the annotations that hold it.
    places: tuple[str, ...]
    options: tuple[Option, ...] = ()
    #: Valid texts without a key.
    texts: tuple[str, ...] = ()
    #: Its texts are names of attributes.
    lists_attributes: bool = False


_SWITCH: Final = ("true", "false")
_ON_ERROR: Final = Option(
    "on.error", choices=("WAIT", "LOG", "STREAM", "STORE"), doc="Failed events of it."
)
_DIST: Final = (
    Option("execGroup", doc="Name of the execution group; elements with one name share it."),
    Option("parallel", Kind.NUMBER, "1", doc="Number of its instances."),
    Option("partitions", Kind.NUMBER, doc="Virtual partitions of the keyed channels it reads."),
    Option("min", Kind.NUMBER, doc="Least number of instances, by load."),
    Option("max", Kind.NUMBER, doc="Greatest number of instances, by load."),
    Option("node", doc="Labels that a worker must have: gpu=true, zone=a."),
    Option("standby", Kind.NUMBER, "0", choices=("0", "1"), doc="Standbys of each instance."),
    Option("mode", choices=tuple(GroupMode), doc="Real time, or streaming queries of its own."),
)
#: Options of stores of every type.
_STORE: Final = (
    Option("username", doc="User of the login."),
    Option("password", is_secret=True, doc="Password; as ${secret:NAME}."),
    Option("table.name", doc="Its table; by default the name of the definition."),
    Option("datasource", doc="Name of a reference, in place of URL and login."),
    Option("kept", Kind.SWITCH, choices=_SWITCH, doc="Whether the state has the rows too."),
)
_REDIS: Final = (
    Option("nodes", is_required=True, is_secret=True, doc="host:6379@password."),
    *_STORE,
    Option("ttl.seconds", Kind.NUMBER, doc="Seconds after which a row leaves."),
    Option("ttl.on.update", Kind.SWITCH, choices=_SWITCH, doc="Whether changes renew them."),
    Option("ttl.on.read", Kind.SWITCH, choices=_SWITCH, doc="Whether reads renew them."),
)
_PURGED: Final = (
    Option("enable", Kind.SWITCH, choices=_SWITCH, doc="Whether values are removed."),
    Option("interval", Kind.DURATION, doc="Time between two looks."),
)

KINDS: Final = (
    AnnotationKind("App:name", "Name of the app; unique in the mesh.", (APP,)),
    AnnotationKind("App:description", "Purpose of the app, for people.", (APP,)),
    AnnotationKind(
        "App:playback",
        "The events give the time: windows and timers follow their timestamps.",
        (APP,),
        (
            Option("idle.time", Kind.DURATION, doc="Time without an event after which time runs."),
            Option("increment", Kind.DURATION, doc="Time that then passes."),
        ),
    ),
    AnnotationKind(
        "App:guarantee",
        "Refuse sources and sinks that give less.",
        (APP,),
        texts=("exactly-once", "at-least-once", "at-most-once"),
    ),
    AnnotationKind("App:aggTimeZone", "Time zone of aggregations: Europe/Berlin.", (APP,)),
    AnnotationKind(
        "App:transportChannelCreationEnabled",
        "Whether the mesh creates the JetStream streams of the app.",
        (APP,),
        texts=_SWITCH,
    ),
    AnnotationKind("source", "Events from outside go into the stream.", _STREAMS),
    AnnotationKind("sink", "Events of the stream go outside.", _STREAMS),
    AnnotationKind(
        "OnError",
        "Handling of events on which a query or a sink of the stream fails.",
        _STREAMS,
        (Option("action", choices=("LOG", "STREAM", "STORE"), doc="STREAM: they go to !S."),),
    ),
    AnnotationKind(
        "Async",
        "Buffer of a stream; accepted, without effect.",
        _STREAMS,
        tuple(Option(k, Kind.NUMBER) for k in ("buffer.size", "workers", "batch.size.max")),
    ),
    AnnotationKind("map", "Format of the payloads.", ("source", "sink")),
    AnnotationKind(
        "attributes",
        "Where each attribute is in a payload: a JSON path, a column, ``trp:name``.",
        ("map",),
        lists_attributes=True,
    ),
    AnnotationKind("payload", "The payload, with {{attribute}} for values.", ("map",)),
    AnnotationKind("distribution", "Several destinations of a sink.", ("sink",)),
    AnnotationKind("destination", "Options of one destination.", ("distribution",)),
    AnnotationKind("PrimaryKey", "Key of the rows.", (TABLE,), lists_attributes=True),
    AnnotationKind("Index", "Attribute by which rows are found.", (TABLE,), lists_attributes=True),
    AnnotationKind(
        "store",
        "Database that keeps the rows.",
        (TABLE, AGGREGATION),
        (
            Option("jdbc.url", is_required=True, is_secret=True, doc="URL of the database."),
            *_STORE,
            Option("field.length", doc="Characters of texts in a new table: a:100,b:20."),
            Option("on.error", default="RETRY", choices=("RETRY", "STORE"), doc="Refused rows."),
        ),
    ),
    AnnotationKind(
        "cache",
        "Rows of the database that are kept in memory.",
        ("store",),
        (
            Option("size", Kind.NUMBER, is_required=True, doc="Number of rows."),
            Option("cache.policy", default="FIFO", choices=tuple(CachePolicy.__members__)),
            Option("retention.period", Kind.DURATION, doc="Age after which a row is read again."),
        ),
    ),
    AnnotationKind(
        "purge",
        "Removal of old values.",
        (AGGREGATION,),
        _PURGED,
    ),
    AnnotationKind(
        "purge",
        "Removal of the state of keys without events.",
        (PARTITION,),
        (*_PURGED, Option("idle.period", Kind.DURATION, doc="Time without an event of a key.")),
    ),
    AnnotationKind(
        "retentionPeriod",
        "How long the values of each duration are kept: sec='2 min', day='1 year'.",
        ("purge",),
        tuple(Option(k, Kind.DURATION) for k in ("sec", "min", "hour", "day", "month", "year")),
    ),
    AnnotationKind("PartitionById", "Values of several meshes are merged.", (AGGREGATION,)),
    AnnotationKind("info", "Name of the query.", (QUERY,), (Option("name"),)),
    AnnotationKind("dist", "Execution group, and the number of its instances.", _GROUPED, _DIST),
    AnnotationKind(
        "dist",
        "Number of instances of the receiver.",
        ("source",),
        (Option("parallel", Kind.NUMBER, "1", doc="Number of its instances."),),
    ),
)
_ROLES: Final = {"source": Role.SOURCE, "sink": Role.SINK}
_MAPPERS: Final = {"source": Role.SOURCE_MAPPER, "sink": Role.SINK_MAPPER}
#: Precedes the options of a connector: the type that it names.
_STORES: Final[Mapping[str, str]] = {
    StoreKind.RDBMS: "A relational database.",
    StoreKind.REDIS: "A server of Redis, in which each row is a hash.",
}
_TYPE: Final = {"distribution": "strategy"}


def kind_of(name: str, place: str) -> AnnotationKind | None:
    """The annotation ``name``, compared without case, at a place; or anywhere."""
    matches = [kind for kind in KINDS if kind.name.lower() == name.lower()]
    return next((kind for kind in matches if place in kind.places), matches[0] if matches else None)


def kinds_at(place: str) -> list[AnnotationKind]:
    """The annotations that may precede an element, or be in another annotation."""
    return [kind for kind in KINDS if place in kind.places]


def role_of(path: Sequence[str]) -> Role | None:
    """The role that the innermost of nested annotations has, by their names in lower case."""
    *outer, name = path
    if name == "map":
        return _MAPPERS.get(outer[-1]) if outer else None
    if name == "distribution":
        return Role.DISTRIBUTION
    if name == "destination":
        return Role.SINK
    return _ROLES.get(name) if not outer else None


def type_key(path: Sequence[str]) -> str | None:
    """The key by which an annotation names its connector or store; None if it names none."""
    name = path[-1]
    if name == "destination":
        return None
    return _TYPE.get(name, "type") if name == "store" or role_of(path) is not None else None


def types_at(path: Sequence[str]) -> Mapping[str, str]:
    """The types that an annotation may name, with their documentation."""
    role = role_of(path)
    if role is not None:
        return {name: spec.doc for name, spec in registry.of_role(role).items()}
    if path[-1] == "store":
        stores = EXTENSIONS[ExtensionRole.STORE].values()
        return {one.name: _STORES.get(one.name, "") for one in stores if one.runs}
    return {}


def spec_at(path: Sequence[str], types: Sequence[str | None]) -> Spec | None:
    """The connector of the innermost of nested annotations; ``types``: those that each names."""
    role = role_of(path)
    named = types[path.index("sink")] if path[-1] == "destination" and "sink" in path else types[-1]
    return registry.find(role, named) if role is not None and named is not None else None


def options_at(path: Sequence[str], types: Sequence[str | None]) -> tuple[Option, ...]:
    """The options of an annotation of that type, those without effect left out."""
    spec = spec_at(path, types)
    place = path[-2] if len(path) > 1 else ""
    kind = kind_of(path[-1], place)
    options = kind.options if kind is not None else ()
    if path[-1] == "store" and types[-1] == StoreKind.REDIS:
        return _REDIS
    if spec is not None:
        options = tuple(option for option in spec.options if not option.is_ignored)
        if path[-1] in _ROLES:
            options += tuple(o for o in (_ON_ERROR,) if spec.option(o.name) is None)
    return options


def values_of(option: Option) -> tuple[str, ...]:
    """The values to propose for an option."""
    if option.choices:
        return option.choices
    if option.kind is Kind.SWITCH:
        return _SWITCH
    return (option.default,) if option.default else ()


def annotated_names(cursor: Cursor, first: int, last: int) -> Iterator[tuple[str, Position]]:
    """Names in the annotations between two tokens that may be attributes, with their places."""
    open_: list[str] = []
    tokens = cursor.tokens
    for at in range(first, last):
        token = tokens[at]
        if token.text == "(":
            open_.append(_annotation(cursor, at))
        elif token.text == ")" and open_:
            open_.pop()
        elif token.kind is TokenKind.STRING:
            content = str(token.value)
            start = token.start + (len(token.text) - len(content)) // 2
            key = tokens[at - 2].text.lower() if tokens[at - 1].text == "=" else ""
            if (open_ and open_[-1] in LISTS) or key in _KEYS:
                yield content, cursor.places.of(start, start + len(content))
            for match in _TEMPLATE.finditer(content):
                name = match[1]
                yield name, cursor.places.of(start + match.start(1), start + match.end(1))
        elif open_ and open_[-1] == "attributes" and tokens[at + 1].text == "=":
            yield str(token.value), cursor.place(token)


def _annotation(cursor: Cursor, at: int) -> str:
    """Name of the annotation whose bracket is at ``at``, in lower case."""
    return cursor.tokens[at - 1].text.lower() if at else ""
