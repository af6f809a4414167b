"""Templates with ``{{attribute}}``: the text of each row, and how formats escape values in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa

from mesh.mapping.texts import text_of
from pyspark_nats.arrow import kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark_nats.arrow import Array

_TEMPLATE: Final = re.compile(r"\{\{(.*?)\}\}")
#: Of Mustache: with three braces or an ampersand a value stays as it is.
_MUSTACHE: Final = re.compile(r"\{\{\{(.*?)\}\}\}|\{\{&(.*?)\}\}|\{\{(.*?)\}\}")
_MARKS: Final = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"))
_HTML: Final = (*_MARKS, ('"', "&quot;"), ("'", "&#39;"), ("`", "&#96;"), ("=", "&#61;"))
#: Characters that XML does not have.
_NO_XML: Final = r"[\x00-\x08\x0b\x0c\x0e-\x1f]"


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


def mustache(text: str, names: Collection[str]) -> Callable[[pa.RecordBatch], Array]:
    """A function as that of ``template``, of a text of Mustache with variables only.

    Raises:
        ValueError: an unknown attribute, or another tag.
    """
    parts: list[tuple[str, str | None]] = []
    at = 0
    for found in _MUSTACHE.finditer(text):
        raw = found[1] if found[1] is not None else found[2]
        name = (found[3] if raw is None else raw).strip()
        if name not in names:
            raise ValueError(f'@payload has the tag "{found[0]}", which is no attribute\'s')
        parts += [(text[at : found.start()], None), (name, "html" if raw is None else "raw")]
        at = found.end()
    parts.append((text[at:], None))

    def fill(rows: pa.RecordBatch) -> Array:
        columns: list[Any] = [
            pa.scalar(part) if kind is None
            else in_html(text_of(rows.column(part))) if kind == "html"
            else text_of(rows.column(part))
            for part, kind in parts
        ]  # fmt: skip
        if len(columns) == 1:
            return pa.array([text] * rows.num_rows, pa.string())
        return kernels.binary_join_element_wise(*columns, pa.scalar(""))

    return fill


def in_json(texts: Array) -> Array:
    """Texts inside of a string of JSON."""
    needs = kernels.match_substring_regex(texts, r'["\\\x00-\x1f]')
    if not kernels.any(needs).as_py():
        return texts
    escaped = [orjson.dumps(text)[1:-1].decode() for text in texts.filter(needs).to_pylist()]
    return kernels.replace_with_mask(texts, needs, pa.array(escaped, pa.string()))


def in_xml(texts: Array) -> Array:
    """Texts inside of an element of XML."""
    for mark, entity in _MARKS:
        texts = kernels.replace_substring(texts, mark, entity)
    return kernels.replace_substring_regex(texts, _NO_XML, "\N{REPLACEMENT CHARACTER}")


def in_html(texts: Array) -> Array:
    """Texts inside of HTML, escaped as Mustache does."""
    for mark, entity in _HTML:
        texts = kernels.replace_substring(texts, mark, entity)
    return texts
