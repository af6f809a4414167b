"""Protocol Buffers as events and back: one message a payload."""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from mesh.connect.contract import library
from mesh.functions.exact_json import read_exact
from mesh.mapping.events import Refusal, of_values
from mesh.mapping.outside import Exact, instant
from mesh.mapping.proto_text import SCALARS, class_of, compiled_class, message_class
from pyspark_nats.decode.values import real_of, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.mapping.events import Parsed
    from pyspark_nats.decode.result import DecodeResult

_REPEATED: Final = 3
_MESSAGE: Final = 11
_BYTES: Final = 12
_ENUM: Final = 14
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_DURATION: Final = "google.protobuf.Duration"
#: Messages that are a value which may be absent.
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String")
)


def class_for(text: str | None, descriptor: str | None, name: str | None, schema: pa.Schema) -> Any:
    """The class of a message of ``proto`` or ``descriptor``, or one made of the stream.

    That has fields 1 to n, all optional.

    Raises:
        ValueError: the definition is invalid.
    """
    if text and descriptor:
        raise ValueError("options proto and descriptor exclude each other")
    if descriptor:
        try:
            octets = binascii.a2b_base64(descriptor.strip(), strict_mode=True)
        except ValueError as error:
            raise ValueError(f"option descriptor is not base64: {error}") from error
        return compiled_class(octets, name)
    if text:
        return message_class(text, name)
    file = library("google.protobuf.descriptor_pb2", "protobuf").FileDescriptorProto()
    file.name, file.syntax = "stream.proto", "proto3"
    message = file.message_type.add()
    message.name = "Event"
    for number, attribute in enumerate(schema, 1):
        field = message.field.add()
        field.name, field.number, field.label = attribute.name, number, 1
        field.type, field.proto3_optional = _number_of(attribute.type), True
        field.oneof_index = number - 1
        message.oneof_decl.add().name = f"_{attribute.name}"
    return class_of([file], "Event")


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

    def __init__(self, root: Any, path: str, kind: pa.DataType | None = None) -> None:
        """The field at a path; ``kind`` is the type of the values that are written."""
        self._json = library("google.protobuf.json_format", "protobuf")
        self._name = path
        descriptor = root.DESCRIPTOR
        self._path: list[Any] = []
        for name in path.split("."):
            field = None if descriptor is None else descriptor.fields_by_name.get(name)
            if field is None:
                raise ValueError(f'message "{root.DESCRIPTOR.full_name}" has no field "{path}"')
            if self._path and _is_repeated(self._path[-1]):
                raise ValueError(f'field "{self._path[-1].name}" of "{path}" is no single message')
            self._path.append(field)
            descriptor = field.message_type
        last = self._path[-1]
        if last.type == _BYTES:
            raise ValueError(f'field "{path}" is bytes, and no attribute has those')
        self._kind = last.message_type.full_name if last.type == _MESSAGE else ""
        # Each look at a descriptor costs more than one at a message.
        self._outer = [field.name for field in self._path[:-1]]
        self._last = last.name
        self._has_presence = bool(last.has_presence)
        self._is_scalar = not _is_repeated(last) and last.type not in (_ENUM, _MESSAGE)
        self._same = _same(last, kind) if self._is_scalar else None

    def read(self, message: Any) -> Any:
        """The value; None for a field that is not set and knows that."""
        for name in self._outer:
            if not message.HasField(name):
                return None
            message = getattr(message, name)
        if not self._is_scalar:
            return self._read_other(message)
        if self._has_presence and not message.HasField(self._last):
            return None
        return getattr(message, self._last)

    def _read_other(self, message: Any) -> Any:
        """The value of a field that is repeated, an enum or a message."""
        last = self._path[-1]
        if _is_repeated(last):
            return self._read_several(message, last)
        if self._has_presence and not message.HasField(last.name):
            return None
        value = getattr(message, last.name)
        if last.type == _ENUM:
            enum_value = last.enum_type.values_by_number.get(value)
            return Exact(enum_value.name if enum_value is not None else str(value), value)
        if self._kind == _TIMESTAMP:
            return instant(value.seconds * 10**9 + value.nanos, "ns", "ms")
        if self._kind == _DURATION:
            return _duration(value.seconds * 10**9 + value.nanos)
        if self._kind in _WRAPPERS:
            return value.value
        return self._json.MessageToDict(value, preserving_proto_field_name=True)

    def _read_several(self, message: Any, field: Any) -> Any:
        """A list or a map, as the library's JSON has it."""
        only = type(message)()
        getattr(only, field.name).MergeFrom(getattr(message, field.name))
        is_map = field.type == _MESSAGE and field.message_type.GetOptions().map_entry
        document = self._json.MessageToDict(only, preserving_proto_field_name=True)
        return document.get(field.name, {} if is_map else [])

    def write(self, message: Any, value: Any) -> None:
        """Set the value; None leaves the field alone.

        Raises:
            ValueError: the field has no such value; it names the field.
        """
        if value is None:
            return
        try:
            for name in self._outer:
                message = getattr(message, name)
            if type(value) is self._same:
                setattr(message, self._last, value)
            else:
                self._set(message, self._path[-1], value)
        # The library has errors of many kinds.
        except Exception as error:
            lines = str(error).splitlines()
            why = lines[0] if lines else type(error).__name__
            raise ValueError(f'field "{self._name}" can\'t be {shown(value)}: {why}') from error

    def _set(self, message: Any, field: Any, value: Any) -> None:
        is_message = field.type == _MESSAGE
        if _is_repeated(field) or (
            is_message and self._kind not in (_TIMESTAMP, _DURATION, *_WRAPPERS)
        ):
            if not isinstance(value, str):
                raise TypeError("it takes JSON texts")
            self._json.ParseDict({field.name: read_exact(value)}, message)
        elif self._kind in _WRAPPERS:
            inner = getattr(message, field.name)
            inner.value = _scalar(field.message_type.fields_by_name["value"], value)
            inner.SetInParent()
        elif is_message and type(value) is int:
            getattr(message, field.name).FromMilliseconds(value)
        elif is_message and isinstance(value, str):
            getattr(message, field.name).FromJsonString(value)
        elif is_message:
            raise TypeError("it takes milliseconds as a long, or texts")
        else:
            setattr(message, field.name, _scalar(field, value))


def _duration(nanos: int) -> Exact:
    """A time span as the library's JSON has it; its number is in milliseconds."""
    seconds, rest = divmod(abs(nanos), 10**9)
    fraction = f".{rest:09}".rstrip("0") if rest else ""
    number, odd = divmod(nanos, 10**6)
    return Exact(f"{'-' if nanos < 0 else ''}{seconds}{fraction}s", None if odd else number)


def _scalar(field: Any, value: Any) -> Any:
    """A value of a field that is no message.

    Raises:
        ValueError: it is of another type, or a number beyond a float.
    """
    if field.type == _ENUM and isinstance(value, str):
        enum_value = field.enum_type.values_by_name.get(value)
        if enum_value is None:
            raise ValueError(f'it is no value of enum "{field.enum_type.name}"')
        return enum_value.number
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        is_single = field.cpp_type == field.CPPTYPE_FLOAT
        if type(value) in (int, float):
            value = real_of(value, pa.float32() if is_single else pa.float64())
        if type(value) is not float:
            raise ValueError("it is no number of the field's type")
        return value
    expected = {field.CPPTYPE_STRING: str, field.CPPTYPE_BOOL: bool}.get(field.cpp_type, int)
    if type(value) is not expected:
        raise ValueError("it is of another type")
    return value


def _same(field: Any, kind: pa.DataType | None) -> type | None:
    """The type of Python whose values the field has, or the library refuses; None without one."""
    if field.cpp_type == field.CPPTYPE_FLOAT:
        return float if kind == pa.float32() else None
    types = {
        field.CPPTYPE_STRING: str, field.CPPTYPE_BOOL: bool, field.CPPTYPE_DOUBLE: float,
    }  # fmt: skip
    return types.get(field.cpp_type, int)


def _is_repeated(field: Any) -> bool:
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == _REPEATED)


class ProtobufSource:
    """Messages as events: by the names of fields, or by paths such as ``a.b``."""

    def __init__(
        self, schema: pa.Schema, missing: str, message_class: Any, paths: Mapping[str, str]
    ) -> None:
        self._schema, self._missing, self._message_class = schema, missing, message_class
        field_paths = paths or {name: name for name in schema.names}
        self._places = [(name, _Place(message_class, path)) for name, path in field_paths.items()]
        self._error = library("google.protobuf.message", "protobuf").DecodeError

    def decode(
        self, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None = None
    ) -> DecodeResult:
        """See ``SourceMapper``."""
        return of_values(self._events, payloads, self._schema, self._missing)

    def _events(self, _: int, payload: bytes) -> Parsed:
        message = self._message_class()
        try:
            message.ParseFromString(payload)
        except self._error:
            return [f'the payload is no message "{self._message_class.DESCRIPTOR.full_name}"']
        event = {name: place.read(message) for name, place in self._places}
        return [event]


class ProtobufSink:
    """Events as messages: attributes by name, or by ``@payload(field='attribute')``."""

    content_type = "application/x-protobuf"

    def __init__(
        self, schema: pa.Schema, message_class: Any, keyed: Sequence[tuple[str, str]]
    ) -> None:
        self._message_class = message_class
        pairs = keyed or [(name, name) for name in schema.names]
        unknown = [text for _, text in pairs if text not in schema.names]
        if unknown:
            raise ValueError(f'@payload of protobuf names attributes, and "{unknown[0]}" is none')
        self._places = [
            (text, _Place(message_class, path, schema.field(text).type)) for path, text in pairs
        ]

    def encode(self, rows: pa.RecordBatch) -> list[bytes]:
        """See ``SinkMapper``."""
        columns = [rows.column(name).to_pylist() for name, _ in self._places]
        places = [place for _, place in self._places]
        return [self._encoded(places, values) for values in zip(*columns, strict=True)]

    def _encoded(self, places: Sequence[_Place], values: Sequence[Any]) -> bytes:
        message = self._message_class()
        try:
            for place, value in zip(places, values, strict=True):
                place.write(message, value)
            payload: bytes = message.SerializeToString()
        # Values of another type, texts that are no UTF-8, required fields.
        except Exception as error:
            reason = str(error).splitlines()[0]
            return Refusal(f"the event does not fit the message: {reason}".encode())
        return payload
