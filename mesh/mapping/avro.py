"""Avro records as events and back: one record a payload, with a schema that both sides know.

The schema is the app author's, and payloads are strangers'.  A schema that lets a short payload
become a large value, as an array of nulls does, is therefore refused when the app is planned.
"""

from __future__ import annotations

import io
import re
from itertools import compress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa

from mesh.connect.contract import library
from mesh.functions.exact_json import read_exact
from mesh.functions.jsonpaths import PathNotFoundError, parse
from mesh.mapping.avro_values import UnfitError, encoded, fits, kind_of, with_mesh_types
from mesh.mapping.events import Refusal, of_values
from mesh.mapping.json_source import rooted
from mesh.mapping.sinks import template_sink

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.mapping.events import Parsed
    from mesh.model.values import EventValues
    from pyspark_nats.decode.result import DecodeResult

#: Byte 0 and the number of a schema, which serializers of a registry write first.
_HEAD_BYTES: Final = 5
#: Numbers of a text that the fast parser has in another way, or not at all.
_MAY_CHANGE: Final = re.compile(rb"[0-9]{19}|[\s:,\[]-0|[eE]\+?[0-9]{3}")


def schema_of(text: str | None, schema: pa.Schema, name: str) -> Any:
    """The schema of ``schema.def``, or one made of the stream, in which every field may be null.

    Its logical types are those of ``mesh.mapping.avro_values``.

    Raises:
        ValueError: the text is no schema of a record, or one that strangers could abuse.
    """
    parse_schema = library("fastavro", "avro").parse_schema
    if not text:
        fields = [
            {"name": field.name, "type": ["null", _type_of(field.type)], "default": None}
            for field in schema
        ]
        return parse_schema({"type": "record", "name": name, "fields": fields})
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"schema.def is not JSON: {error.msg}") from error
    if not isinstance(document, dict) or document.get("type") != "record":
        raise ValueError("schema.def is not the schema of a record")
    try:
        parse_schema(document)
        _least_bytes(document, ())
        return parse_schema(with_mesh_types(document))
    except ValueError:
        raise
    # The library has errors of many kinds.
    except Exception as error:
        raise ValueError(f"schema.def is no schema: {error}") from error


def _type_of(kind: Any) -> str:
    if pa.types.is_string(kind):
        return "string"
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_floating(kind):
        return "float" if kind.bit_width == 32 else "double"
    return "int" if kind.bit_width == 32 else "long"


def _least_bytes(schema: Any, inside: tuple[str, ...]) -> int:
    """The bytes that a value has at least.

    Raises:
        ValueError: it contains itself, or has an array or map of values of no bytes.
    """
    if isinstance(schema, list):
        return 1 + min((_least_bytes(one, inside) for one in schema), default=0)
    if isinstance(schema, str):
        if schema in inside:
            raise ValueError(f'schema.def: record "{schema}" contains itself')
        return 0 if schema == "null" else {"float": 4, "double": 8}.get(schema, 1)
    kind = schema["type"]
    match kind:
        case "record":
            enclosing = (*inside, schema["name"], f"{schema.get('namespace', '')}.{schema['name']}")
            return sum(_least_bytes(field["type"], enclosing) for field in schema["fields"])
        case "array" | "map":
            items = schema["items" if kind == "array" else "values"]
            if _least_bytes(items, inside) + (kind == "map") < 1:
                raise ValueError("schema.def has an array of values without any bytes")
            return 1
        case "fixed":
            return int(schema["size"])
        case "enum":
            return 1
        case _:
            return _least_bytes(kind, inside)


class AvroSource:
    """Records as events: by the names of fields, or by paths."""

    def __init__(
        self,
        schema: pa.Schema,
        missing: str,
        definition: str | None,
        paths: Mapping[str, str],
        *,
        has_head: bool,
        number: int | None = None,
    ) -> None:
        """The mapping; payloads with a head have the schema ``number``, if it is given."""
        self._schema, self._missing, self._has_head = schema, missing, has_head
        self._number = number
        self._avro = schema_of(definition, schema, "event")
        self._read = library("fastavro", "avro").schemaless_reader
        self._paths = [(name, parse(rooted(text))) for name, text in paths.items()]
        field_names = {field["name"] for field in self._avro["fields"]}
        absent = [name for name in schema.names if name not in field_names]
        if absent and not paths and missing == "error":
            raise ValueError(f'the Avro schema has no field "{absent[0]}"')

    def decode(
        self, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None = None
    ) -> DecodeResult:
        """See ``SourceMapper``."""
        return of_values(self._events, payloads, self._schema, self._missing)

    def _events(self, _: int, payload: bytes) -> Parsed:
        start = 0
        if self._has_head:
            if len(payload) < _HEAD_BYTES or payload[0] != 0:
                return ["the payload does not begin with byte 0 and the number of a schema"]
            schema_id = int.from_bytes(payload[1:_HEAD_BYTES], "big")
            if self._number not in (None, schema_id):
                return [f"the payload has schema {schema_id}, and schema {self._number} is read"]
            start = _HEAD_BYTES
        data = io.BytesIO(payload)
        data.seek(start)
        record = self._read(data, self._avro)
        if data.tell() != len(payload):
            return ["the payload is longer than the record"]
        if not self._paths:
            return [record]
        event = {}
        for name, path in self._paths:
            try:
                event[name] = path.read(record)
            except PathNotFoundError:
                continue
        return [event]


class AvroSink:
    """Events as records: of the attributes by name, or of a JSON template."""

    content_type = "application/avro"

    def __init__(
        self,
        schema: pa.Schema,
        definition: str | None,
        payload: str | None,
        head: int | None,
    ) -> None:
        self._avro = schema_of(definition, schema, "event")
        self._write = library("fastavro", "avro").schemaless_writer
        self._named = self._avro.get("__named_schemas", {})
        self._head = b"" if head is None else b"\0" + head.to_bytes(4, "big")
        self._has_decimals = "decimal" in (definition or "")
        self._template = None
        if payload is not None:
            self._template = template_sink(payload, schema.names, "json", {})
            return
        absent = [
            field["name"]
            for field in self._avro["fields"]
            if field["name"] not in schema.names and "default" not in field
        ]
        if absent:
            raise ValueError(f'the stream has no attribute "{absent[0]}" of the Avro schema')

    def encode(self, rows: pa.RecordBatch) -> list[bytes]:
        """See ``SinkMapper``."""
        if self._template is None:
            return self._of_rows(rows)
        texts = self._template.encode(rows)
        is_exact = self._has_decimals or _MAY_CHANGE.search(b"\n".join(texts)) is not None
        read = self._read_exact if is_exact else orjson.loads
        documents = []
        for text in texts:
            try:
                documents.append(text if isinstance(text, Refusal) else read(text))
            except orjson.JSONDecodeError as error:
                documents.append(Refusal(f"the template is not JSON: {error.msg}".encode()))
        return self._of_documents(documents)

    def _read_exact(self, text: bytes) -> object:
        """The value of a template, with all digits if the schema may need them."""
        is_exact = self._has_decimals or _MAY_CHANGE.search(text) is not None
        return read_exact(text) if is_exact else orjson.loads(text)

    def _of_documents(self, documents: Sequence[Any]) -> list[bytes]:
        names = {field["name"] for field in self._avro["fields"]}
        is_whole = [isinstance(one, dict) and one.keys() >= names for one in documents]
        whole = list(compress(documents, is_whole))
        checked = []
        for field in self._avro["fields"]:
            values = [document[field["name"]] for document in whole]
            kind = kind_of(values)
            if kind is None or not fits(field["type"], kind, has_nulls=None in values):
                checked.append((field["name"], field["type"]))
        return [
            one if isinstance(one, Refusal) else self._encoded(one, checked if has_all else None)
            for one, has_all in zip(documents, is_whole, strict=True)
        ]

    def _of_rows(self, rows: pa.RecordBatch) -> list[bytes]:
        events = rows.to_pylist()
        checked = []
        for field in self._avro["fields"]:
            name = field["name"]
            if name not in rows.schema.names:
                continue
            column = rows.column(name)
            if not fits(field["type"], column.type, has_nulls=bool(column.null_count)):
                checked.append((name, field["type"]))
                for event, value in zip(events, _values_of(column), strict=True):
                    event[name] = value
        return [self._encoded(event, checked) for event in events]

    def _encoded(self, event: EventValues, checked: Sequence[tuple[str, object]] | None) -> bytes:
        """A record; ``checked`` are the fields whose values may not fit, None for all."""
        out = io.BytesIO()
        out.write(self._head)
        try:
            if checked is None:
                event = encoded(event, self._avro, self._named)
            for name, schema in checked or ():
                event[name] = encoded(event[name], schema, self._named, name)
            self._write(out, self._avro, event)
        except UnfitError as error:
            return Refusal(f"the event does not fit the Avro schema: {error}".encode())
        # The library has errors of many kinds.
        except Exception as error:
            reason = str(error).splitlines()[0]
            return Refusal(f"the event does not fit the Avro schema: {reason}".encode())
        return out.getvalue()


def _values_of(column: Any) -> list[Any]:
    """Values of Python; floats keep their own shortest text."""
    values: list[Any] = column.to_pylist()
    if pa.types.is_float32(column.type):
        return [None if value is None else np.float32(value) for value in values]
    return values
