"""Rows as payloads, one for each row: JSON, XML, CSV, text, maps, MessagePack, Arrow, templates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa

from mesh.mapping.texts import text_of
from pyspark_nats.arrow import kernels
from pyspark_nats.encode import to_arrow, to_json
from pyspark_nats.encode.msgpack_rows import to_msgpack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_nats.arrow import Array

_TEMPLATE: Final = re.compile(r"\{\{(.*?)\}\}")
_XML_NAME: Final = re.compile(r"[A-Za-z_][\w.-]*\Z")
_MARKS: Final = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"))
#: Characters that XML does not have.
_NO_XML: Final = r"[\x00-\x08\x0b\x0c\x0e-\x1f]"


class Encoder:
    """A sink mapper made of a function from rows to binary values."""

    def __init__(self, encode: Callable[[pa.RecordBatch], Array], content_type: str) -> None:
        self._encode = encode
        self.content_type = content_type

    def encode(self, rows: pa.RecordBatch) -> list[bytes]:
        """See ``SinkMapper``."""
        if not rows.num_rows:
            return []
        found: list[bytes] = self._encode(rows).cast(pa.binary()).to_pylist()
        return found


def json_sink(envelope: str, enclosing: str) -> Encoder:
    """``{"event":{..}}``, inside of the enclosing element if one is given."""
    head, tail = (b'{"event":', b"}") if envelope == "event" else (b"", b"")
    for name in reversed([n for n in enclosing.removeprefix("$").split(".") if n]):
        head, tail = b"{" + orjson.dumps(name) + b":" + head, tail + b"}"

    def encode(rows: pa.RecordBatch) -> Array:
        return _joined(head, to_json(rows), tail)

    return Encoder(encode, "application/json")


def plain_json_sink() -> Encoder:
    """The object by attribute name."""
    return Encoder(to_json, "application/json")


def msgpack_sink() -> Encoder:
    """The map by attribute name."""
    return Encoder(to_msgpack, "application/msgpack")


def arrow_sink() -> Encoder:
    """An IPC stream of one row."""

    def encode(rows: pa.RecordBatch) -> Array:
        return pa.array([data for data, _, _ in to_arrow(rows, None, 1)], pa.binary())

    return Encoder(encode, "application/vnd.apache.arrow.stream")


def csv_sink(delimiter: str, order: Sequence[str] = ()) -> Encoder:
    """Values in the order of the attributes, or in the given one."""
    between = {"\\t": "\t"}.get(delimiter, delimiter)

    def encode(rows: pa.RecordBatch) -> Array:
        columns = [rows.column(name) for name in order or rows.schema.names]
        return _together([_csv_value(column, between) for column in columns], between)

    return Encoder(encode, "text/csv")


def _csv_value(column: Array, between: str) -> Array:
    texts = text_of(column)
    if not pa.types.is_string(column.type):
        return texts
    needs = kernels.match_substring_regex(texts, f'[{re.escape(between)}"\r\n]')
    # A text that reads as null is quoted as well.
    needs = kernels.or_(needs, kernels.fill_null(kernels.equal(column, "null"), False))
    if not kernels.any(needs).as_py():
        return texts
    doubled = kernels.replace_substring(texts, '"', '""')
    quoted = kernels.binary_join_element_wise('"', doubled, '"', "")
    return kernels.if_else(needs, quoted, texts)


def text_sink(line: str) -> Encoder:
    """``a:"x",`` and ``b:1``, a line each."""

    def encode(rows: pa.RecordBatch) -> Array:
        parts: list[Any] = []
        last = rows.num_columns - 1
        for at, (name, column) in enumerate(zip(rows.schema.names, rows.columns, strict=True)):
            is_text = pa.types.is_string(column.type)
            texts = text_of(column)
            if is_text:
                quoted = kernels.binary_join_element_wise('"', texts, '"', "")
                texts = kernels.if_else(column.is_valid(), quoted, "null")
            end = f",{line}" if at < last else ""
            parts += [pa.scalar(f"{name}:"), texts, pa.scalar(end)]
        return kernels.binary_join_element_wise(*parts, pa.scalar(""))

    return Encoder(encode, "text/plain")


def keyvalue_sink(keys: Sequence[tuple[str, str]], names: Sequence[str]) -> Encoder:
    """A JSON map: of attributes by name, or of templates by key."""
    if not keys:
        return plain_json_sink()
    made = [(key, _value_template(text, names)) for key, text in keys]

    def encode(rows: pa.RecordBatch) -> Array:
        columns = [fill(rows) for _, fill in made]
        batch = pa.RecordBatch.from_arrays(columns, names=[key for key, _ in made])
        return to_json(batch)

    return Encoder(encode, "application/json")


def _value_template(text: str, names: Sequence[str]) -> Callable[[pa.RecordBatch], Array]:
    """A value: that of an attribute with its type, a word in backquotes, or a template."""
    if text in names:
        return lambda rows: rows.column(text)
    if len(text) > 1 and text[0] == text[-1] == "`":
        text = text[1:-1]
    fill = template(text, lambda texts: texts)
    return lambda rows: fill(rows)


def xml_sink(enclosing: str, attributes: Sequence[str]) -> Encoder:
    """``<events><event>..</event></events>``, inside of the enclosing element if one is given."""
    for name in attributes:
        if not _XML_NAME.match(name):
            raise ValueError(f'attribute "{name}" can\'t be the name of an element')
    names = re.findall(r"[A-Za-z_][\w.-]*", enclosing)
    head = "".join(f"<{name}>" for name in names) + "<event>"
    tail = "</event>" + "".join(f"</{name}>" for name in reversed(names))
    if not names:
        head, tail = f"<events>{head}", f"{tail}</events>"
    nil = ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:nil="true"/>'

    def encode(rows: pa.RecordBatch) -> Array:
        parts: list[Any] = [pa.scalar(head)]
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            value = kernels.binary_join_element_wise(
                f"<{name}>", _in_xml(text_of(column)), f"</{name}>", ""
            )
            parts.append(kernels.if_else(column.is_valid(), value, f"<{name}{nil}"))
        return kernels.binary_join_element_wise(*parts, pa.scalar(tail), pa.scalar(""))

    return Encoder(encode, "application/xml")


def template_sink(text: str, names: Sequence[str], kind: str) -> Encoder:
    """``@payload('..{{a}}..')``; values are escaped as the format needs inside of its texts."""
    escape = {"json": _in_json, "xml": _in_xml}.get(kind, lambda texts: texts)
    content_type = {"json": "application/json", "xml": "application/xml"}.get(kind, "text/plain")
    # A payload that is the name of an attribute is its value.
    return Encoder(template(f"{{{{{text}}}}}" if text in names else text, escape), content_type)


def template(text: str, escape: Callable[[Array], Array]) -> Callable[[pa.RecordBatch], Array]:
    """A function from rows to the template filled with the values of each."""
    pieces = _TEMPLATE.split(text)

    def fill(rows: pa.RecordBatch) -> Array:
        if len(pieces) == 1:
            return pa.array([text] * rows.num_rows, pa.string())
        parts: list[Any] = [
            escape(text_of(rows.column(piece))) if at % 2 else pa.scalar(piece)
            for at, piece in enumerate(pieces)
        ]
        return kernels.binary_join_element_wise(*parts, pa.scalar(""))

    return fill


def dynamic(text: str) -> Callable[[pa.RecordBatch], list[str]] | None:
    """A function from rows to the values of a dynamic option; None for one that is the same."""
    if not _TEMPLATE.search(text):
        return None
    fill = template(text, lambda texts: texts)
    return lambda rows: fill(rows).to_pylist()


def _in_json(texts: Array) -> Array:
    needs = kernels.match_substring_regex(texts, r'["\\\x00-\x1f]')
    if not kernels.any(needs).as_py():
        return texts
    escaped = [orjson.dumps(text)[1:-1].decode() for text in texts.filter(needs).to_pylist()]
    return kernels.replace_with_mask(texts, needs, pa.array(escaped, pa.string()))


def _in_xml(texts: Array) -> Array:
    for mark, entity in _MARKS:
        texts = kernels.replace_substring(texts, mark, entity)
    return kernels.replace_substring_regex(texts, _NO_XML, "\N{REPLACEMENT CHARACTER}")


def _joined(head: bytes, values: Array, tail: bytes) -> Array:
    if not head:
        return values
    none = pa.scalar(b"", pa.binary())
    return kernels.binary_join_element_wise(
        pa.scalar(head, pa.binary()), values, pa.scalar(tail, pa.binary()), none
    )


def _together(columns: Sequence[Array], between: str) -> Array:
    if len(columns) == 1:
        return columns[0]
    return kernels.binary_join_element_wise(*columns, pa.scalar(between))
