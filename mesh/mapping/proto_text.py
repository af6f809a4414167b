"""A reader of the text of Protocol Buffers definitions, and classes of their messages.

The text becomes a descriptor, and all else is the library's.  The library reads no text, and the
compiler that is a package of Python (grpcio-tools) brings 30 MB and a library of calls.  So a
definition that needs files of its own, or parts that are not read here, is given as the compiler
makes it: ``protoc --include_imports --descriptor_set_out``.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any, Final

from mesh.connect.contract import library

if TYPE_CHECKING:
    from collections.abc import Sequence

_LIBRARY_FILE: Final = re.compile(r"google/protobuf/[a-z_]+\.proto\Z")
_TOKEN: Final = re.compile(
    r"\s+|//[^\n]*|/\*.*?\*/|(?P<text>\"[^\"\n]*\"|'[^'\n]*')|(?P<word>[A-Za-z_][\w.]*|\.[\w.]+)"
    r"|(?P<number>[+-]?(?:0[xX][0-9a-fA-F]+|[\d.]+(?:[eE][+-]?\d+)?))|(?P<mark>[{}=;<>,\[\]():+-])",
    re.DOTALL,
)
_TEXT_MAX: Final = 100_000
#: Types of fields and their numbers in a descriptor.
SCALARS: Final = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "fixed64": 6, "fixed32": 7,
    "bool": 8, "string": 9, "bytes": 12, "uint32": 13, "sfixed32": 15, "sfixed64": 16,
    "sint32": 17, "sint64": 18,
}  # fmt: skip
_COMPILE: Final = "; give it compiled, in option descriptor"
_LIBRARY_ROOT: Final = "google/protobuf/"
_LABELS: Final = {"optional": 1, "required": 2, "repeated": 3}


class ProtoReader:
    """Reads one text into a ``FileDescriptorProto``."""

    def __init__(self, text: str) -> None:
        if len(text) > _TEXT_MAX:
            raise ValueError(f"the definition has more than {_TEXT_MAX} characters")
        self._tokens: list[str] = []
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise ValueError(f"the definition has {text[at : at + 10]!r} at character {at}")
            at = match.end()
            if match.lastgroup is not None:
                self._tokens.append(match[0])
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
                case "import":
                    self._import()
                case "option" | "service" | "extend":
                    # None of them changes a message that is read here.
                    self._skip()
                case "message":
                    self._message(self._file.message_type.add(), 0)
                case "enum":
                    self._enum(self._file.enum_type.add())
                case ";":
                    pass
                case other:
                    raise ValueError(f'the definition has "{other}"{_COMPILE}')
        if self._file.syntax not in ("proto2", "proto3"):
            raise ValueError(f'syntax "{self._file.syntax}" is not supported{_COMPILE}')
        return self._file

    def _import(self) -> None:
        name = self._next()
        if name in ("public", "weak"):
            name = self._next()
        name = name.strip("\"'")
        if not name.startswith(_LIBRARY_ROOT):
            raise ValueError(f'the definition imports "{name}"{_COMPILE}')
        self._file.dependency.append(name)
        self._expect(";")

    def _next(self) -> str:
        if self._at >= len(self._tokens):
            raise ValueError("the definition ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, token: str) -> None:
        actual = self._next()
        if actual != token:
            raise ValueError(f'the definition has "{actual}" instead of "{token}"')

    def _skip(self) -> None:
        """Skip a statement: to its semicolon, or to the brace that ends its block."""
        depth = 0
        while (token := self._next()) != ";" or depth:
            depth += (token in ("{", "[")) - (token in ("}", "]"))
            if token == "}" and not depth and self._peek() != ";":
                return

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

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
                case "oneof":
                    self._oneof(message)
                case "reserved" | "option" | "extensions" | "extend":
                    self._skip()
                case ";":
                    pass
                case _:
                    self._field(message, token)
        # The oneofs that optional fields are in come after the others.
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add().name = f"_{field.name}"

    def _oneof(self, message: Any) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add().name = self._next()
        self._expect("{")
        while (token := self._next()) != "}":
            if token == "option":
                self._skip()
            elif token != ";":
                self._field(message, token).oneof_index = index

    def _map(self, message: Any, field: Any) -> None:
        """A map is a repeated message of a key and a value."""
        self._expect("<")
        key = self._next()
        self._expect(",")
        value = self._next()
        self._expect(">")
        field.name, field.label = self._next(), _LABELS["repeated"]
        entry = message.nested_type.add()
        entry.name = "".join(part.capitalize() for part in field.name.split("_")) + "Entry"
        entry.options.map_entry = True
        field.type_name = entry.name
        for number, (name, kind) in enumerate((("key", key), ("value", value)), 1):
            inner = entry.field.add()
            inner.name, inner.number, inner.label = name, number, 1
            self._set_type(inner, kind)

    def _field(self, message: Any, token: str) -> Any:
        field = message.field.add()
        field.label = _LABELS.get(token, 1)
        kind = self._next() if token in _LABELS else token
        if kind == "group":
            raise ValueError(f'the definition has "group"{_COMPILE}')
        if kind == "map" and self._peek() == "<":
            self._map(message, field)
        else:
            field.proto3_optional = token == "optional" and self._file.syntax == "proto3"
            field.name = self._next()
            self._set_type(field, kind)
        self._expect("=")
        number = self._next()
        if not number.isdecimal():
            raise ValueError(f'"{number}" is no number of a field')
        field.number = int(number)
        if self._next() == "[":
            self._at -= 1
            self._skip()
        elif self._tokens[self._at - 1] != ";":
            raise ValueError(f'field "{field.name}" does not end with ";"')
        return field

    @staticmethod
    def _set_type(field: Any, kind: str) -> None:
        if kind in SCALARS:
            field.type = SCALARS[kind]
        else:
            # The pool looks up whether it is a message or an enum.
            field.type_name = kind

    def _enum(self, enum: Any) -> None:
        enum.name = self._next()
        self._expect("{")
        while (token := self._next()) != "}":
            if token == "option" and self._peek() == "allow_alias":
                enum.options.allow_alias = True
            if token in ("option", "reserved"):
                self._skip()
                continue
            value = enum.value.add()
            value.name = token
            self._expect("=")
            value.number = int(self._next(), 0)
            self._skip()


def message_class(text: str, name: str | None) -> Any:
    """The class of a message in a definition.

    Args:
        text: of the definition.
        name: with its package; None for the only message.

    Raises:
        ValueError: the text is no definition, or has no such message.
    """
    return class_of([ProtoReader(text).read()], name)


def compiled_class(octets: bytes, name: str | None) -> object:
    """The class of a message in a set of files that the compiler made; as ``message_class``."""
    files = library("google.protobuf.descriptor_pb2", "protobuf").FileDescriptorSet()
    try:
        files.ParseFromString(octets)
    # The library has errors of several kinds.
    except Exception as error:
        raise ValueError(f"option descriptor is no compiled definition: {error}") from error
    return class_of(list(files.file), name)


def class_of(files: Sequence[Any], name: str | None) -> object:
    """The class of a message of the last of some files, in a pool of their own.

    Raises:
        ValueError: a file is invalid, or there is no such message.
    """
    pools = library("google.protobuf.descriptor_pool", "protobuf")
    factory = library("google.protobuf.message_factory", "protobuf")
    pool = pools.DescriptorPool()
    if not files:
        raise ValueError("the definition has no file")
    last_file = files[-1]
    if name is None:
        names = [message.name for message in last_file.message_type]
        if len(names) != 1:
            raise ValueError(f"option message names one of {', '.join(names) or 'no messages'}")
        name = names[0]
    try:
        file_names = {file.name for file in files}
        for file in files:
            _add_imports(pool, [n for n in file.dependency if n not in file_names], file_names)
            pool.AddSerializedFile(file.SerializeToString())
        full = name if "." in name or not last_file.package else f"{last_file.package}.{name}"
        return factory.GetMessageClass(pool.FindMessageTypeByName(full))
    except KeyError as error:
        raise ValueError(f'the definition has no message "{name}"') from error
    except TypeError as error:
        raise ValueError(f"the definition is invalid: {error}") from error


def _add_imports(pool: Any, names: Sequence[str], existing: set[str]) -> None:
    """Add files that are part of the library, with those that they import."""
    for name in names:
        module = name.removesuffix(".proto").replace("/", ".")
        if name in existing or not _LIBRARY_FILE.match(name):
            continue
        existing.add(name)
        try:
            descriptor = importlib.import_module(f"{module}_pb2").DESCRIPTOR
        except ImportError as error:
            raise ValueError(f'the definition imports "{name}", which is not known') from error
        _add_imports(pool, [file.name for file in descriptor.dependencies], existing)
        pool.AddSerializedFile(descriptor.serialized_pb)
