"""Attributes from transport properties, ``@attributes(a='trp:name')``, beside those of payloads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.connect.spec import PROPERTY
from mesh.mapping.texts import typed
from pyspark_nats.decode.result import DecodeResult, without
from pyspark_nats.decode.values import WrongValueError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.mapping.contract import SourceMapper


def split(paths: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Paths in payloads by attribute, and names of transport properties by attribute."""
    body_paths = {name: text for name, text in paths.items() if not text.startswith(PROPERTY)}
    keys = {n: text[len(PROPERTY) :].lower() for n, text in paths.items() if n not in body_paths}
    return body_paths, keys


class PropertySource:
    """Adds attributes from properties to the events of a mapper."""

    def __init__(
        self, schema: pa.Schema, missing: str, keys: Mapping[str, str], inner: SourceMapper | None
    ) -> None:
        """The mapping.

        Args:
            schema: of the rows.
            missing: "error" or "null".
            keys: names of properties in small letters, by attribute.
            inner: mapper of the other attributes; None if there are none: each payload is an event.
        """
        self._schema, self._missing, self._keys, self._inner = schema, missing, keys, inner
        self.is_open = getattr(inner, "is_open", None)

    def decode(
        self, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None = None
    ) -> DecodeResult:
        """See ``SourceMapper``."""
        result = self._inner.decode(payloads) if self._inner else _each(len(payloads))
        by_message = properties if properties is not None else [{}] * len(payloads)
        reasons: dict[int, str] = {}
        columns = []
        for field in self._schema:
            if field.name not in self._keys:
                columns.append(result.rows.column(field.name))
                continue
            key = self._keys[field.name]
            values = (by_message[number].get(key) for number in result.message.tolist())
            # Connectors of others may give numbers.
            texts = [None if value is None else str(value) for value in values]
            column, wrong = typed(pa.array(texts, pa.string()), field.type)
            columns.append(column)
            for row in wrong:
                wrong_value = WrongValueError(texts[row], field.type)
                reasons.setdefault(row, wrong_value.reason(field.name))
            if self._missing == "error":
                for row in (row for row, text in enumerate(texts) if text is None):
                    reasons.setdefault(row, f'attribute "{field.name}" is missing')
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return without(replace(result, rows=rows), reasons)


def _each(count: int) -> DecodeResult:
    """An event without attributes for each payload."""
    numbers = np.arange(count, dtype=np.int64)
    rows, times = pa.RecordBatch.from_arrays([], names=[]), pa.nulls(count, pa.int64())
    return DecodeResult(rows, numbers, np.zeros_like(numbers), times, [], count)
