"""Rows as payloads, one for each row: JSON, XML, CSV, text, maps, MessagePack, Arrow, templates.

Options with ``{{attribute}}`` filled with the values of rows, each value in its place.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa

from mesh.connect.places import PAYLOAD_TEMPLATE, TemplateSlot, filling
from mesh.mapping.encoder import (
    Encoder,
    PayloadFrame,
    against_json,
    not_finite,
    not_in_text,
    not_in_xml,
)
from mesh.mapping.texts import text_of
from pyspark_nats.arrow import kernels
from pyspark_nats.encode import to_arrow, to_json
from pyspark_nats.encode.msgpack_rows import to_msgpack

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from mesh.connect.places import OptionPlace
    from pyspark_nats.arrow import Array


_XML_NAME: Final = re.compile(r"[A-Za-z_][\w.-]*\Z")
#: An element's tag in the option ``enclosing.element``, or its name alone.
_TAG: Final = re.compile(r"<([A-Za-z_][\w.:-]*)[^<>]*>|([A-Za-z_][\w.:-]*)")
#: Of Mustache: with three braces or an ampersand a value stays as it is.
_MUSTACHE: Final = re.compile(r"\{\{\{(.*?)\}\}\}|\{\{&(.*?)\}\}|\{\{(.*?)\}\}")
_MARKS: Final = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"))
#: A reader of XML takes a carriage return for a line feed, and in a tag each of these for a space.
_RETURN: Final = ("\r", "&#13;")
_TAG_MARKS: Final = (('"', "&quot;"), ("'", "&#39;"), ("\n", "&#10;"), ("\t", "&#9;"))
_HTML: Final = (*_MARKS, ('"', "&quot;"), ("'", "&#39;"), ("`", "&#96;"), ("=", "&#61;"))


class Misplaced(str):
    """In place of an option's text, and empty: the reason why an event has none."""

    __slots__ = ("reason",)

    def __new__(cls, reason: str) -> Misplaced:
        """An empty text with a reason."""
        text = super().__new__(cls)
        text.reason = reason
        return text

    reason: str


def filler(
    option: str, place: OptionPlace, template: str
) -> Callable[[pa.RecordBatch], list[str]] | None:
    """A function from rows to the texts of an option; None for one that is the same.

    A text that a row can't have is ``Misplaced``.
    """
    parsed = filling(place, template)
    if parsed is None:
        return None
    parts, is_closed = parsed.parts, parsed.is_closed
    named = " and ".join(f'"{part.attribute}"' for part in parts if isinstance(part, TemplateSlot))

    def misplaced(text: str, attributes: str) -> Misplaced:
        said = f'"{text[:80]}" of attribute {attributes} is not {place.value.words}'
        return Misplaced(f'option "{option}": {said}')

    def fill(rows: pa.RecordBatch) -> list[str]:
        columns = []
        refused: dict[int, Misplaced] = {}
        for part in parts:
            if isinstance(part, str):
                columns.append(pa.scalar(part))
                continue
            texts = text_of(rows.column(part.attribute))
            for at in _others(texts, part.fits):
                refused[at] = misplaced(texts[at].as_py(), f'"{part.attribute}"')
            columns.append(_escaped(texts, part.escape))
        values: list[str] = kernels.binary_join_element_wise(*columns, pa.scalar("")).to_pylist()
        if is_closed is not None:
            closed = {
                at: misplaced(text, named) for at, text in enumerate(values) if is_closed(text)
            }
            refused = closed | refused
        for at, one in refused.items():
            values[at] = one
        return values

    return fill


def _others(texts: Array, fits: str) -> list[int]:
    """Places of the texts that don't fit."""
    if not fits:
        return []
    is_good = kernels.match_substring_regex(texts, f"^(?:{fits})$")
    if kernels.all(is_good).as_py() is not False:
        return []
    places: list[int] = kernels.indices_nonzero(kernels.invert(is_good)).to_pylist()
    return places


def _escaped(texts: Array, escape: Callable[[str], str] | None) -> Array:
    if escape is None:
        return texts
    return pa.array([escape(text) for text in texts.to_pylist()], pa.string())


def json_sink(envelope: str, enclosing: str, raw: Collection[str] = (), **more: Any) -> Encoder:
    """``{"event":{..}}``, inside of the enclosing element if one is given.

    ``raw``: attributes whose texts are JSON.
    """
    head, tail = (b'{"event":', b"}") if envelope == "event" else (b"", b"")
    objects, unfit = _objects_of(raw)

    def encode(rows: pa.RecordBatch) -> Array:
        return _around(head, objects(rows), tail)

    frame = _json_frame(enclosing, b",")
    return Encoder(encode, "application/json", frame, unfit=unfit, **more)


def _objects_of(
    raw: Collection[str],
) -> tuple[
    Callable[[pa.RecordBatch], Array],
    Callable[[pa.RecordBatch, Sequence[bytes]], Mapping[int, str]],
]:
    """Functions to the object of each row, and to the reasons against rows that have none."""
    if not raw:
        return to_json, not_finite

    def objects(rows: pa.RecordBatch) -> Array:
        members = []
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            if name in raw:
                key = orjson.dumps(name).decode()
                texts = kernels.fill_null(column, "null")
                members.append(kernels.binary_join_element_wise(key, texts, ":"))
            else:
                alone = to_json(pa.RecordBatch.from_arrays([column], names=[name]))
                members.append(kernels.utf8_slice_codeunits(alone.cast(pa.string()), 1, -1))
        joined = kernels.binary_join_element_wise(*members, ",")
        return kernels.binary_join_element_wise("{", joined, "}", "").cast(pa.binary())

    def unfit(rows: pa.RecordBatch, _: Sequence[bytes]) -> Mapping[int, str]:
        reasons = not_finite(rows)
        for name in raw:
            for row, text in enumerate(rows.column(name).to_pylist()):
                if text is not None and against_json(text.encode()) is not None:
                    reasons.setdefault(row, f'attribute "{name}" has a text that is not JSON')
        return reasons

    return objects, unfit


def _json_frame(enclosing: str, between: bytes) -> PayloadFrame:
    head = tail = b""
    for name in reversed([n for n in enclosing.removeprefix("$").split(".") if n]):
        head, tail = b"{" + orjson.dumps(name) + b":" + head, tail + b"}"
    return PayloadFrame(head, tail, between, b"[", b"]")


def plain_json_sink(raw: Collection[str] = ()) -> Encoder:
    """The object by attribute name; ``raw``: attributes whose texts are JSON."""
    objects, unfit = _objects_of(raw)
    return Encoder(objects, "application/json", unfit=unfit)


def msgpack_sink() -> Encoder:
    """The map by attribute name."""
    return Encoder(to_msgpack, "application/msgpack")


def arrow_sink() -> Encoder:
    """An IPC stream of one row."""

    def encode(rows: pa.RecordBatch) -> Array:
        return to_arrow(rows, None, 1)[0]

    return Encoder(encode, "application/vnd.apache.arrow.stream")


def csv_sink(delimiter: str, order: Sequence[str], *, has_header: bool, **more: Any) -> Encoder:
    """Values in the given order of attributes."""
    between = {"\\t": "\t"}.get(delimiter, delimiter)

    def encode(rows: pa.RecordBatch) -> Array:
        columns = [rows.column(name) for name in order]
        texts = [_csv_value(column, between) for column in columns]
        if len(texts) == 1:
            # An empty line is no event.
            texts = [kernels.if_else(kernels.equal(texts[0], ""), '""', texts[0])]
        return _together(texts, between)

    header = f"{between.join(order)}\n".encode() if has_header else b""
    return Encoder(encode, "text/csv", header=header, **more)


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


def text_sink(options: Mapping[str, object], **more: Any) -> Encoder:
    """``a:"x",`` and ``b:1``, a line each."""
    line = _line_of(options)

    def encode(rows: pa.RecordBatch) -> Array:
        parts = []
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

    return Encoder(encode, "text/plain", _text_frame(options), **more)


def _line_of(options: Mapping[str, object]) -> str:
    return str(options.get("new.line.character") or "\n")


def _text_frame(options: Mapping[str, object]) -> PayloadFrame:
    line = _line_of(options)
    return PayloadFrame(between=f"{line}{options.get('delimiter')}{line}".encode())


def keyvalue_sink(
    keys: Sequence[tuple[str, str]], names: Sequence[str], raw: Collection[str] = ()
) -> Encoder:
    """A JSON map: of attributes by name, or of templates by key."""
    if not keys:
        return plain_json_sink(raw)
    fillers = [(key, _value_template(text, names)) for key, text in keys]

    def encode(rows: pa.RecordBatch) -> Array:
        columns = [fill(rows) for _, fill in fillers]
        batch = pa.RecordBatch.from_arrays(columns, names=[key for key, _ in fillers])
        return to_json(batch)

    return Encoder(encode, "application/json", unfit=not_finite)


def _value_template(text: str, names: Sequence[str]) -> Callable[[pa.RecordBatch], Array]:
    """A value: that of an attribute with its type, a word in backquotes, or a template."""
    if text in names:
        return lambda rows: rows.column(text)
    if len(text) > 1 and text[0] == text[-1] == "`":
        text = text[1:-1]
    return _template(text)


def xml_sink(enclosing: str, attributes: Sequence[str], **more: Any) -> Encoder:
    """``<events><event>..</event></events>``, inside of the enclosing element if one is given."""
    for name in attributes:
        if not _XML_NAME.match(name):
            raise ValueError(f'attribute "{name}" can\'t be the name of an element')
    nil = ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:nil="true"/>'

    def encode(rows: pa.RecordBatch) -> Array:
        parts = [pa.scalar("<event>")]
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            value = kernels.binary_join_element_wise(
                f"<{name}>", _in_xml(text_of(column)), f"</{name}>", ""
            )
            parts.append(kernels.if_else(column.is_valid(), value, f"<{name}{nil}"))
        return kernels.binary_join_element_wise(*parts, pa.scalar("</event>"), pa.scalar(""))

    frame = _xml_frame(enclosing or "<events>")
    return Encoder(encode, "application/xml", frame, unfit=not_in_xml, **more)


def _xml_frame(enclosing: str) -> PayloadFrame:
    """The frame of ``<a><b k="v">``, or of the names of elements."""
    tags = [(match[0], match[1] or match[2]) for match in _TAG.finditer(enclosing)]
    head = "".join(tag if tag.startswith("<") else f"<{tag}>" for tag, _ in tags)
    tail = "".join(f"</{name}>" for _, name in reversed(tags))
    return PayloadFrame(head.encode(), tail.encode(), between=b"")


def template_sink(
    text: str, names: Sequence[str], kind: str, options: Mapping[str, object], **more: Any
) -> Encoder:
    """``@payload('..{{a}}..')``; values are escaped as the format needs inside of its texts."""
    # A payload that is the name of an attribute is its value.
    text = f"{{{{{text}}}}}" if text in names else text
    enclosing = str(options.get("enclosing.element") or "")
    if kind == "json":
        frame = _json_frame(enclosing, b",\n")
        fill = _template(text, _in_json)
        return Encoder(fill, "application/json", frame, unfit=not_in_text, **more)
    if kind == "xml":
        fill, frame = _template(text, _in_xml, _in_tag), _xml_frame(enclosing)
        return Encoder(fill, "application/xml", frame, unfit=not_in_xml, **more)
    fill = _mustache(text, names) if options.get("mustache.enabled") else _template(text)
    return Encoder(fill, "text/plain", _text_frame(options), **more)


def _plain(texts: Array) -> Array:
    """Texts as they are."""
    return texts


def _template(
    text: str,
    escape: Callable[[Array], Array] = _plain,
    escape_in_tag: Callable[[Array], Array] | None = None,
) -> Callable[[pa.RecordBatch], Array]:
    """A function from rows to the text with ``{{attribute}}``, filled with the values of each.

    ``{{{attribute}}}`` is not escaped: JSON in a text becomes a part of the payload.
    ``escape_in_tag`` is for places between ``<`` and ``>``.
    """
    parts: list[tuple[str, Callable[[Array], Array] | None]] = []
    at = 0
    for match in PAYLOAD_TEMPLATE.finditer(text):
        head = text[: match.start()]
        is_in_tag = escape_in_tag is not None and head.rfind("<") > head.rfind(">")
        escaping = escape_in_tag if is_in_tag else escape
        parts += [
            (text[at : match.start()], None),
            (match[1], _plain) if match[1] is not None else (match[2], escaping),
        ]
        at = match.end()
    return _filled([*parts, (text[at:], None)])


def _filled(
    parts: Sequence[tuple[str, Callable[[Array], Array] | None]],
) -> Callable[[pa.RecordBatch], Array]:
    """A function from rows to texts; of a part with an escape it takes the attribute's value."""

    def fill(rows: pa.RecordBatch) -> Array:
        if len(parts) == 1:
            return pa.array([parts[0][0]] * rows.num_rows, pa.string())
        columns = [
            pa.scalar(part) if escape is None else escape(text_of(rows.column(part)))
            for part, escape in parts
        ]
        return kernels.binary_join_element_wise(*columns, pa.scalar(""))

    return fill


def _mustache(text: str, names: Collection[str]) -> Callable[[pa.RecordBatch], Array]:
    """A function as that of ``_template``, of a text of Mustache with variables only.

    Raises:
        ValueError: an unknown attribute, or another tag.
    """
    parts: list[tuple[str, Callable[[Array], Array] | None]] = []
    at = 0
    for match in _MUSTACHE.finditer(text):
        raw = match[1] if match[1] is not None else match[2]
        name = (match[3] if raw is None else raw).strip()
        if name not in names:
            reason = ", which is no attribute's"
            if name[:1] in ("#", "^", "/"):
                reason = "; sections of Mustache don't run here, write {{a}} alone"
            raise ValueError(f'@payload has the tag "{match[0]}"{reason}')
        parts += [(text[at : match.start()], None), (name, _in_html if raw is None else _plain)]
        at = match.end()
    return _filled([*parts, (text[at:], None)])


def _in_json(texts: Array) -> Array:
    """Texts inside of a string of JSON."""
    needs = kernels.match_substring_regex(texts, r'["\\\x00-\x1f]')
    if not kernels.any(needs).as_py():
        return texts
    escaped = [orjson.dumps(text)[1:-1].decode() for text in texts.filter(needs).to_pylist()]
    return kernels.replace_with_mask(texts, needs, pa.array(escaped, pa.string()))


def _in_xml(texts: Array) -> Array:
    """Texts inside of an element of XML."""
    for mark, entity in (*_MARKS, _RETURN):
        texts = kernels.replace_substring(texts, mark, entity)
    return texts


def _in_tag(texts: Array) -> Array:
    """Texts inside of the value of an attribute of XML."""
    texts = _in_xml(texts)
    for mark, entity in _TAG_MARKS:
        texts = kernels.replace_substring(texts, mark, entity)
    return texts


def _in_html(texts: Array) -> Array:
    """Texts inside of HTML, escaped as Mustache does."""
    for mark, entity in _HTML:
        texts = kernels.replace_substring(texts, mark, entity)
    return texts


def _around(head: bytes, values: Array, tail: bytes) -> Array:
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
