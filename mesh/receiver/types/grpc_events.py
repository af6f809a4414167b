"""Messages and metadata of gRPC as sources and sinks use them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mesh.connect.contract import Options, RefusedPayloadError, library
from mesh.connect.grpc_specs import Method, method_of
from mesh.errors import MeshError
from mesh.mapping.proto_text import message_class

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: The original's message; ``process`` answers one, and ``consume`` an empty message.
_EVENT: Final = """syntax = "proto3";
message Event { string payload = 1; map<string, string> headers = 2; }
"""
#: Metadata that makes a repeat known.
KEY: Final = "idempotency-key"
_NAME: Final = re.compile(r"(?!grpc-)[0-9a-z_.-]{1,256}\Z")
#: The library gives them up, or has its own.
_RESERVED_NAMES: Final = frozenset({"content-length", "content-type", "te", "user-agent"})
_VALUE: Final = re.compile(r"[\x20-\x7e]*\Z")
_BINARY: Final = "-bin"


def method(options: Options, option: str, usual: str) -> tuple[Method, Envelope | None]:
    """The method of a URL option, and the envelope of its payloads; None without one.

    Raises:
        MeshError: MESH-C133 for a URL that names no method.
    """
    try:
        rpc = method_of(str(options[option]), usual)
    except ValueError as error:
        raise MeshError("MESH-C133", f"{option} is not of gRPC", detail=f"{error}.") from error
    is_event = options.get("event.envelope")
    is_event = rpc.is_of_events if is_event is None else is_event
    return rpc, Envelope() if is_event else None


class Envelope:
    """Payload and headers in a message ``Event``."""

    def __init__(self) -> None:
        self._event_class = message_class(_EVENT, "Event")
        self._error = library("google.protobuf.message", "protobuf").DecodeError

    def packed(self, payload: bytes, headers: Iterable[tuple[str, str]]) -> bytes:
        """The message of a payload; ValueError for one that is no text."""
        try:
            text = payload.decode()
        except UnicodeDecodeError as error:
            raise ValueError("an Event has texts, and the payload is no UTF-8") from error
        message = self._event_class(payload=text, headers=dict(headers))
        octets: bytes = message.SerializeToString()
        return octets

    def unpacked(self, message: bytes) -> tuple[bytes, dict[str, str]]:
        """Payload and headers of a message; RefusedPayloadError for one of another form."""
        event = self._event_class()
        try:
            event.ParseFromString(message)
        except self._error as error:
            raise RefusedPayloadError("the message is no Event") from error
        return event.payload.encode(), dict(event.headers)


def opened(envelope: Envelope | None, message: bytes) -> tuple[bytes, dict[str, str]]:
    """Payload and headers of a message, which is its payload itself without an envelope."""
    return (message, {}) if envelope is None else envelope.unpacked(message)


def checked(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pairs as metadata, with names in small letters.

    Raises:
        ValueError: gRPC has no such name or value.
    """
    metadata = [(name.lower(), value) for name, value in pairs]
    for name, value in metadata:
        if not _NAME.match(name) or name.endswith(_BINARY) or name in _RESERVED_NAMES:
            raise ValueError(f'metadata can\'t have the name "{name[:80]}"')
        if not _VALUE.match(value):
            raise ValueError(f'metadata "{name[:80]}" can\'t have a value that is not ASCII')
    return metadata


def properties_of(*metadata: Iterable[tuple[str, str | bytes]] | None) -> dict[str, str]:
    """Metadata as transport properties; values of bytes are none."""
    properties: dict[str, str] = {}
    for name, value in (pair for one in metadata for pair in one or ()):
        if isinstance(value, str):
            # Several of one name are one list, as in HTTP.
            properties[name] = f"{properties[name]}, {value}" if name in properties else value
    return properties
