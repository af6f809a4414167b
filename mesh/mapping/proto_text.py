"""A reader of the text of Protocol Buffers definitions: messages, enums, fields; no files."""

from __future__ import annotations

import re
from typing import Any, Final

from mesh.connect.extras import library

_TOKEN: Final = re.compile(
    r"\s+|//[^\n]*|/\*.*?\*/|(?P<text>\"[^\"\n]*\"|'[^'\n]*')|(?P<word>[A-Za-z_][\w.]*|\.[\w.]+)"
    r"|(?P<number>-?\d+)|(?P<mark>[{}=;<>,\[\]])",
    re.DOTALL,
)
_TEXT_MAX: Final = 100_000
#: Types of fields and their numbers in a descriptor.
SCALARS: Final = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "fixed64": 6, "fixed32": 7,
    "bool": 8, "string": 9, "bytes": 12, "uint32": 13, "sfixed32": 15, "sfixed64": 16,
    "sint32": 17, "sint64": 18,
}  # fmt: skip
_LABELS: Final = {"optional": 1, "required": 2, "repeated": 3}


class ProtoReader:
    """Reads one text into a ``FileDescriptorProto``."""

    def __init__(self, text: str) -> None:
        if len(text) > _TEXT_MAX:
            raise ValueError(f"the definition has more than {_TEXT_MAX} characters")
        self._tokens: list[str] = []
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise ValueError(f"the definition has {text[at : at + 10]!r} at character {at}")
            at = found.end()
            if found.lastgroup is not None:
                self._tokens.append(found[0])
        self._at = 0
        self._file = library("google.protobuf.descriptor_pb2", "protobuf").FileDescriptorProto()

    def read(self) -> Any:
        """The descriptor.

        Raises:
            ValueError: the text is no definition, or has a part that is not supported.
        """
        self._file.name, self._file.syntax = "mesh.proto", "proto2"
        while self._at < len(self._tokens):
            match self._next():
                case "syntax":
                    self._expect("=")
                    self._file.syntax = self._next().strip("\"'")
                    self._expect(";")
                case "package":
                    self._file.package = self._next()
                    self._expect(";")
                case "option":
                    self._skip()
                case "message":
                    self._message(self._file.message_type.add(), 0)
                case "enum":
                    self._enum(self._file.enum_type.add())
                case ";":
                    pass
                case other:
                    raise ValueError(f'the definition has "{other}", which is not supported')
        if self._file.syntax not in ("proto2", "proto3"):
            raise ValueError(f'syntax "{self._file.syntax}" is not supported')
        return self._file

    def _next(self) -> str:
        if self._at >= len(self._tokens):
            raise ValueError("the definition ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, token: str) -> None:
        found = self._next()
        if found != token:
            raise ValueError(f'the definition has "{found}" instead of "{token}"')

    def _skip(self) -> None:
        while self._next() != ";":
            pass

    def _message(self, message: Any, depth: int) -> None:
        if depth > 20:
            raise ValueError("messages are nested too deeply")
        message.name = self._next()
        self._expect("{")
        while (token := self._next()) != "}":
            match token:
                case "message":
                    self._message(message.nested_type.add(), depth + 1)
                case "enum":
                    self._enum(message.enum_type.add())
                case "reserved" | "option":
                    self._skip()
                case ";":
                    pass
                case "oneof" | "map" | "extensions" | "extend" | "group":
                    raise ValueError(f'the definition has "{token}", which is not supported')
                case _:
                    self._field(message, token)

    def _field(self, message: Any, token: str) -> None:
        field = message.field.add()
        field.label = _LABELS.get(token, 1)
        kind = self._next() if token in _LABELS else token
        if token == "optional" and self._file.syntax == "proto3":
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
        field.name = self._next()
        if field.proto3_optional:
            message.oneof_decl.add().name = f"_{field.name}"
        self._expect("=")
        number = self._next()
        if not number.isdecimal():
            raise ValueError(f'"{number}" is no number of a field')
        field.number = int(number)
        if kind in SCALARS:
            field.type = SCALARS[kind]
        else:
            # The pool looks up whether it is a message or an enum.
            field.type_name = kind
        if self._next() == "[":
            while self._next() != "]":
                pass
            self._expect(";")
        elif self._tokens[self._at - 1] != ";":
            raise ValueError(f'field "{field.name}" does not end with ";"')

    def _enum(self, enum: Any) -> None:
        enum.name = self._next()
        self._expect("{")
        while (token := self._next()) != "}":
            if token in ("option", "reserved"):
                self._skip()
                continue
            value = enum.value.add()
            value.name = token
            self._expect("=")
            value.number = int(self._next())
            self._expect(";")


def message_class(text: str, name: str | None) -> Any:
    """The class of a message in a definition.

    Args:
        text: of the definition.
        name: with its package; None for the only message.

    Raises:
        ValueError: the text is no definition, or has no such message.
    """
    file = ProtoReader(text).read()
    known = [message.name for message in file.message_type]
    if name is None and len(known) != 1:
        raise ValueError(f"option message names one of {', '.join(known) or 'no messages'}")
    return class_of(file, name or known[0])


def class_of(file: Any, name: str) -> Any:
    """The class of a message of a file, in a pool of its own.

    Raises:
        ValueError: the file is invalid, or has no such message.
    """
    pools = library("google.protobuf.descriptor_pool", "protobuf")
    factory = library("google.protobuf.message_factory", "protobuf")
    pool = pools.DescriptorPool()
    try:
        pool.AddSerializedFile(file.SerializeToString())
        full = name if "." in name or not file.package else f"{file.package}.{name}"
        return factory.GetMessageClass(pool.FindMessageTypeByName(full))
    except KeyError as error:
        raise ValueError(f'the definition has no message "{name}"') from error
    except TypeError as error:
        raise ValueError(f"the definition is invalid: {error}") from error
