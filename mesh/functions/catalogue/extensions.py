"""Kinds of sources, sinks, mappers, stores and the like that a definition may name.

The engine looks a kind up when it creates the app, by exact name (except script languages), and
refuses an app with an unknown kind.  The engine's own kinds were observed on Siddhi 5.1.7; the rest
are common extensions.  The declarations of connectors (``mesh.connect``) say which ones run here,
and add those of other packages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from mesh.connect import registry
from mesh.functions.catalogue.absent import instead_of_kind, instead_of_unknown
from mesh.functions.catalogue.model import CallRefusal, Reason
from mesh.functions.catalogue.resolve import did_you_mean
from mesh.model.stored import StoreKind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class EntryOrigin(StrEnum):
    """Origin of an entry."""

    #: Observed on the reference engine, Siddhi 5.1.7.
    ENGINE = "engine"
    #: The public documentation of an extension that the engine doesn't include.
    DOCUMENTATION = "documentation"


class ExtensionRole(StrEnum):
    """Role of an extension; the values are the words of messages."""

    SOURCE = "source"
    SINK = "sink"
    SOURCE_MAPPER = "source mapper"
    SINK_MAPPER = "sink mapper"
    STORE = "store"
    DISTRIBUTION = "distribution strategy"
    SCRIPT = "script language"


@dataclass(frozen=True, slots=True)
class ExtensionOption:
    """An option that an extension requires or checks when the app is created."""

    name: str
    is_required: bool = False
    #: May hold ``{{attribute}}``, which is looked up in the stream.
    is_template: bool = False
    #: The valid values in lower case, compared without case; empty: any.
    choices: tuple[str, ...] = ()
    #: Names an attribute of the stream.
    is_attribute: bool = False


@dataclass(frozen=True, slots=True)
class Extension:
    """One kind of source, sink, mapper, store, strategy or script language."""

    name: str
    role: ExtensionRole
    origin: EntryOrigin
    #: Options that are not listed are ignored, unless they hold ``{{attribute}}``.
    options: tuple[ExtensionOption, ...] = ()
    #: This version executes it.
    runs: bool = False


_TEMPLATE: Final = re.compile(r"\{\{(.*?)\}\}")
_PRIORITIES: Final = ("info", "debug", "warn", "fatal", "error", "off", "trace")
_ON_ERROR: Final = ExtensionOption("on.error", choices=("log", "wait", "stream"))
#: Later releases of the engine have it, and with them the extensions.
_ON_ERROR_LATER: Final = ExtensionOption("on.error", choices=("log", "wait", "stream", "store"))

_ENGINE: Final = (
    Extension("inMemory", ExtensionRole.SOURCE, EntryOrigin.ENGINE, (ExtensionOption("topic"),)),
    Extension(
        "inMemory",
        ExtensionRole.SINK,
        EntryOrigin.ENGINE,
        (ExtensionOption("topic", is_required=True, is_template=True), _ON_ERROR),
    ),
    Extension(
        "log",
        ExtensionRole.SINK,
        EntryOrigin.ENGINE,
        (ExtensionOption("priority", choices=_PRIORITIES), ExtensionOption("prefix"), _ON_ERROR),
    ),
    # The default of a source or a sink without @map.
    Extension("passThrough", ExtensionRole.SOURCE_MAPPER, EntryOrigin.ENGINE),
    Extension("passThrough", ExtensionRole.SINK_MAPPER, EntryOrigin.ENGINE),
    Extension("roundRobin", ExtensionRole.DISTRIBUTION, EntryOrigin.ENGINE),
    Extension("broadcast", ExtensionRole.DISTRIBUTION, EntryOrigin.ENGINE),
    Extension(
        "partitioned",
        ExtensionRole.DISTRIBUTION,
        EntryOrigin.ENGINE,
        (ExtensionOption("partitionKey", is_required=True, is_attribute=True),),
    ),
)
_DOCUMENTED: Final = {
    ExtensionRole.SOURCE: "cdc email file fileeventlistener grpc grpc-call-response grpc-service"
    " http http-call-response http-request http-response http-service jms kafka"
    " kafka-replay-response kafkaMultiDC mqtt nats prometheus rabbitmq sse sse-server tcp"
    " websocket websocket-server websubhub wso2event",
    ExtensionRole.SINK: "email file grpc grpc-call grpc-service-response http http-call"
    " http-request http-response http-service-response jms kafka kafka-replay-request"
    " kafkaMultiDC mqtt nats prometheus rabbitmq s3 sse-server tcp websocket websocket-server"
    " websubhub wso2event",
    ExtensionRole.SOURCE_MAPPER: "arrow avro binary csv json keyvalue msgpack protobuf text xml",
    ExtensionRole.SINK_MAPPER: "arrow avro binary csv json keyvalue msgpack protobuf text xml",
    ExtensionRole.STORE: "cassandra elasticsearch hbase mongodb rdbms redis",
    ExtensionRole.SCRIPT: "javascript python r scala",
}


#: Those that no connector declares.
_RUN: Final[Mapping[ExtensionRole, Collection[str]]] = {
    ExtensionRole.STORE: tuple(map(str, StoreKind)),
    ExtensionRole.SCRIPT: ("javascript", "python"),
}


def _table(role: ExtensionRole) -> dict[str, Extension]:
    runs = {spec.name for spec in registry.builtin_specs() if spec.role.value == role.value}
    runs |= set(_RUN.get(role, ()))
    table = {
        extension.name: replace(extension, runs=extension.name in runs)
        for extension in _ENGINE
        if extension.role is role
    }
    options = (_ON_ERROR_LATER,) if role is ExtensionRole.SINK else ()
    for name in _DOCUMENTED.get(role, "").split():
        table[name] = Extension(name, role, EntryOrigin.DOCUMENTATION, options, name in runs)
    return table


#: All known extensions by role and name; those outside the engine have the origin DOCUMENTATION.
EXTENSIONS: Final[Mapping[ExtensionRole, Mapping[str, Extension]]] = {
    role: _table(role) for role in ExtensionRole
}


def find_extension(role: ExtensionRole, name: str) -> Extension | CallRefusal:
    """Look up a kind by the name that its annotation or definition gives it.

    Args:
        role: the role of the extension.
        name: as written; case-sensitive, except for a script language.

    Returns:
        The kind; for an unknown name a refusal that suggests the nearest one that runs.
    """
    table = EXTENSIONS[role]
    extension = table.get(name.lower() if role is ExtensionRole.SCRIPT else name)
    if extension is not None and extension.runs:
        return extension
    if any(s.role.value == role.value and s.name == name for s in registry.specs().values()):
        return Extension(name, role, EntryOrigin.DOCUMENTATION, runs=True)
    if extension is not None:
        return extension
    if instead_of_kind(role, name) is not None:
        return Extension(name, role, EntryOrigin.DOCUMENTATION)
    message = f'{role} "{name}" is not defined'
    hint = did_you_mean(name, (one.name for one in table.values() if one.runs))
    return CallRefusal(Reason.UNKNOWN, message, hint=hint or instead_of_unknown(role))


def check_options(
    extension: Extension, options: Mapping[str, str], attributes: Collection[str]
) -> CallRefusal | None:
    """The objection that the engine would have to the options of an annotation, if any.

    Args:
        extension: the kind that the annotation names.
        options: values by name, ``type`` left out.
        attributes: the names of the stream's attributes.
    """
    declared = {option.name: option for option in extension.options}
    for option in extension.options:
        if option.is_required and option.name not in options:
            return _objection(extension, Reason.COUNT, f'needs the option "{option.name}"')
    for name, value in options.items():
        option = declared.get(name, ExtensionOption(name))
        refusal = _check_value(extension, option, value, attributes)
        if refusal is not None:
            return refusal
    return None


def _check_value(
    extension: Extension, option: ExtensionOption, value: str, attributes: Collection[str]
) -> CallRefusal | None:
    if option.choices and value.lower() not in option.choices:
        what = f'can\'t have "{value}" as its option "{option.name}"'
        hint = f"It is one of {', '.join(option.choices)}."
        return _objection(extension, Reason.VALUE, what, hint)
    named: list[str] = _TEMPLATE.findall(value)
    if option.is_attribute:
        named = [value]
    elif named and not option.is_template:
        if extension.origin is EntryOrigin.DOCUMENTATION:
            # This catalogue doesn't record which of its options accept attributes.
            return None
        what = f'can\'t have an attribute in its option "{option.name}"'
        hint = "Write a text; 'mesh connectors' lists options that take attributes."
        if extension.role is ExtensionRole.SINK:
            hint = "Write it in the payload: @map(type='text', @payload('.. {{a}} ..'))."
        return _objection(extension, Reason.FORM, what, hint)
    for name in named:
        if name not in attributes:
            what = f'names attribute "{name}", which the stream doesn\'t have'
            return _objection(extension, Reason.UNKNOWN, what, did_you_mean(name, attributes))
    return None


def _objection(
    extension: Extension, reason: Reason, what: str, hint: str | None = None
) -> CallRefusal:
    return CallRefusal(reason, f'{extension.role} "{extension.name}" {what}', hint=hint)
