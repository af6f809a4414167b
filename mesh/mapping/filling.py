"""Options with ``{{attribute}}`` filled with the values of rows, each value in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from mesh.connect.places import TemplateSlot, filling
from mesh.mapping.texts import text_of
from pyspark_nats.arrow import kernels

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.connect.places import OptionPlace
    from pyspark_nats.arrow import Array


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
