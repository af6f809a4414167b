"""Protocol Buffers as events and back: one message a payload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from mesh.connect.extras import library
from mesh.mapping.contract import Refusal
from mesh.mapping.events import of_values
from mesh.mapping.proto_text import SCALARS, class_of, message_class

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.mapping.events import Parsed
    from pyspark_nats.decode.result import DecodeResult

_REPEATED: Final = 3
_MESSAGE: Final = 11
_BYTES: Final = 12
_ENUM: Final = 14


def class_for(text: str | None, name: str | None, schema: pa.Schema) -> Any:
    """The class of ``proto`` and ``message``, or one made of the stream: fields 1 to n, optional.

    Raises:
        ValueError: the definition is invalid.
    """
    if text:
        return message_class(text, name)
    file = library("google.protobuf.descriptor_pb2", "protobuf").FileDescriptorProto()
    file.name, file.syntax = "stream.proto", "proto3"
    message = file.message_type.add()
    message.name = "Event"
    for number, own in enumerate(schema, 1):
        field = message.field.add()
        field.name, field.number, field.label = own.name, number, 1
        field.type, field.proto3_optional = _number_of(own.type), True
        field.oneof_index = number - 1
        message.oneof_decl.add().name = f"_{own.name}"
    return class_of(file, "Event")


def _number_of(kind: Any) -> int:
    if pa.types.is_string(kind):
        return SCALARS["string"]
    if pa.types.is_boolean(kind):
        return SCALARS["bool"]
    if pa.types.is_floating(kind):
        return SCALARS["float" if kind.bit_width == 32 else "double"]
    return SCALARS["int32" if kind.bit_width == 32 else "int64"]


class _Place:
    """A field of a message, or of a message inside of it."""

    def __init__(self, made: Any, path: str) -> None:
        descriptor = made.DESCRIPTOR
        self.path: list[Any] = []
        for at, name in enumerate(words := path.split(".")):
            field = descriptor.fields_by_name.get(name) if descriptor is not None else None
            if field is None:
                raise ValueError(f'message "{made.DESCRIPTOR.full_name}" has no field "{path}"')
            is_last = at == len(words) - 1
            if _is_repeated(field) or (field.type == _MESSAGE) is is_last or field.type == _BYTES:
                raise ValueError(f'field "{path}" is no single value')
            self.path.append(field)
            descriptor = field.message_type

    def read(self, message: Any) -> Any:
        """The value; None for a field that is not set and knows that."""
        for field in self.path[:-1]:
            if not message.HasField(field.name):
                return None
            message = getattr(message, field.name)
        last = self.path[-1]
        if last.has_presence and not message.HasField(last.name):
            return None
        value = getattr(message, last.name)
        if last.type == _ENUM:
            known = last.enum_type.values_by_number.get(value)
            return known.name if known is not None else str(value)
        return value

    def write(self, message: Any, value: Any) -> None:
        """Set the value; None leaves the field alone."""
        if value is None:
            return
        for field in self.path[:-1]:
            message = getattr(message, field.name)
        last = self.path[-1]
        if last.type == _ENUM and isinstance(value, str):
            known = last.enum_type.values_by_name.get(value)
            if known is None:
                raise ValueError(f'"{value}" is no value of enum "{last.enum_type.name}"')
            value = known.number
        setattr(message, last.name, value)


def _is_repeated(field: Any) -> bool:
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == _REPEATED)


class ProtobufSource:
    """Messages as events: by the names of fields, or by paths such as ``a.b``."""

    def __init__(
        self, schema: pa.Schema, missing: str, made: Any, paths: Mapping[str, str]
    ) -> None:
        self._schema, self._missing, self._made = schema, missing, made
        own = paths or {name: name for name in schema.names}
        self._places = [(name, _Place(made, path)) for name, path in own.items()]
        self._error = library("google.protobuf.message", "protobuf").DecodeError

    def decode(
        self, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None = None
    ) -> DecodeResult:
        """See ``SourceMapper``."""
        return of_values(self._events, payloads, self._schema, self._missing)

    def _events(self, _: int, payload: bytes) -> Parsed:
        message = self._made()
        try:
            message.ParseFromString(payload)
        except self._error:
            return [f'the payload is no message "{self._made.DESCRIPTOR.full_name}"']
        return [{name: place.read(message) for name, place in self._places}]


class ProtobufSink:
    """Events as messages: attributes by name, or by ``@payload(field='attribute')``."""

    content_type = "application/x-protobuf"

    def __init__(self, schema: pa.Schema, made: Any, keyed: Sequence[tuple[str, str]]) -> None:
        self._made = made
        pairs = keyed or [(name, name) for name in schema.names]
        unknown = [text for _, text in pairs if text not in schema.names]
        if unknown:
            raise ValueError(f'@payload of protobuf names attributes, and "{unknown[0]}" is none')
        self._places = [(text, _Place(made, path)) for path, text in pairs]

    def encode(self, rows: pa.RecordBatch) -> list[bytes]:
        """See ``SinkMapper``."""
        columns = [rows.column(name).to_pylist() for name, _ in self._places]
        places = [place for _, place in self._places]
        return [self._encoded(places, values) for values in zip(*columns, strict=True)]

    def _encoded(self, places: Sequence[_Place], values: Sequence[Any]) -> bytes:
        message = self._made()
        try:
            for place, value in zip(places, values, strict=True):
                place.write(message, value)
            found: bytes = message.SerializeToString()
        # Values out of range, of another type, texts that are no UTF-8, required fields.
        except Exception as error:
            reason = str(error).splitlines()[0]
            return Refusal(f"the event does not fit the message: {reason}".encode())
        return found
