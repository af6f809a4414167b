"""The answer to an on-demand query, as managers give it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """The answer to an on-demand query."""

    #: A JSON list of rows, each a list.
    records: bytes
    #: Name and type of each column.
    columns: tuple[tuple[str, str], ...]
    #: By JetStream stream: the last sequence that the answer includes.
    positions: Mapping[str, int]
    #: Instances whose part is missing.
    missing: tuple[str, ...] = ()
    #: The number of rows that a change has added, changed or removed; None for a query that reads.
    changed: int | None = None

    def to_values(self, *, details: bool) -> dict[str, Any]:
        """The answer as JSON values, in the form of the system before this one, and more."""
        values: dict[str, Any] = {"records": orjson.Fragment(self.records)}
        if details:
            values["details"] = [{"name": n, "dataType": t.upper()} for n, t in self.columns]
        if self.changed is not None:
            values["changed"] = self.changed
        values["positions"] = dict(self.positions)
        if self.missing:
            values["missing"] = list(self.missing)
        return values
