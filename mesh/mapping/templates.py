"""Templates with ``{{attribute}}``: the text of each row, and how formats escape values in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa

from mesh.connect.places import TEMPLATE
from mesh.mapping.texts import text_of
from pyspark_nats.arrow import kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pyspark_nats.arrow import Array

#: Of Mustache: with three braces or an ampersand a value stays as it is.
_MUSTACHE: Final = re.compile(r"\{\{\{(.*?)\}\}\}|\{\{&(.*?)\}\}|\{\{(.*?)\}\}")
_MARKS: Final = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"))
_HTML: Final = (*_MARKS, ('"', "&quot;"), ("'", "&#39;"), ("`", "&#96;"), ("=", "&#61;"))
#: Characters that XML does not have.
_NO_XML: Final = r"[\x00-\x08\x0b\x0c\x0e-\x1f]"


def plain(texts: Array) -> Array:
    """Texts as they are."""
    return texts


def template(
    text: str, escape: Callable[[Array], Array] = plain
) -> Callable[[pa.RecordBatch], Array]:
    """A function from rows to the template filled with the values of each."""
    pieces = TEMPLATE.split(text)
    return _filled([(one, escape if at % 2 else None) for at, one in enumerate(pieces)])


def _filled(
    parts: Sequence[tuple[str, Callable[[Array], Array] | None]],
) -> Callable[[pa.RecordBatch], Array]:
    """A function from rows to texts; of a part with an escape it takes the attribute's value."""

    def fill(rows: pa.RecordBatch) -> Array:
        if len(parts) == 1:
            return pa.array([parts[0][0]] * rows.num_rows, pa.string())
        columns: list[Any] = [
            pa.scalar(part) if escape is None else escape(text_of(rows.column(part)))
            for part, escape in parts
        ]
        return kernels.binary_join_element_wise(*columns, pa.scalar(""))

    return fill


def mustache(text: str, names: Collection[str]) -> Callable[[pa.RecordBatch], Array]:
    """A function as that of ``template``, of a text of Mustache with variables only.

    Raises:
        ValueError: an unknown attribute, or another tag.
    """
    parts: list[tuple[str, Callable[[Array], Array] | None]] = []
    at = 0
    for match in _MUSTACHE.finditer(text):
        raw = match[1] if match[1] is not None else match[2]
        name = (match[3] if raw is None else raw).strip()
        if name not in names:
            raise ValueError(f'@payload has the tag "{match[0]}", which is no attribute\'s')
        parts += [(text[at : match.start()], None), (name, in_html if raw is None else plain)]
        at = match.end()
    return _filled([*parts, (text[at:], None)])


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
