"""On-demand changes of tables, as messages of a group's log among its events.

A change has its place in the total order of events (``dataflow.merge``), so a replay makes it again
at the same place.  Its outcome is part of the state: an answer is read from there, and a change
whose id is known already is not made again.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.language.parser import parse_on_demand_query
from mesh.operators.on_demand import change
from mesh.plan.bind import bind_on_demand

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from mesh.model.values import JsonMapping
    from mesh.operators.environment import Environment
    from mesh.plan.bound import BoundApp

log = logging.getLogger(__name__)

#: Outcomes that are remembered, of the last changes.
OUTCOMES_MAX: Final = 256


class TableChanges:
    """Performs changes, and remembers their outcomes.

    An outcome is ``{"changed": rows}`` or ``{"error": MeshError.to_dict()}``.
    """

    def __init__(self, app: BoundApp, environment: Environment) -> None:
        self._app = app
        self._environment = environment
        #: By id, the oldest first.
        self.outcomes: dict[str, JsonMapping] = {}

    def perform(self, row: pa.RecordBatch, now_ms: int) -> None:
        """Make the change of one row of ``merge.CHANGE_SCHEMA``, unless it has been made."""
        (values,) = row.to_pylist()
        if values["id"] in self.outcomes:
            return
        self.outcomes[values["id"]] = self._outcome(values, now_ms)
        while len(self.outcomes) > OUTCOMES_MAX:
            del self.outcomes[next(iter(self.outcomes))]

    def _outcome(self, values: JsonMapping, now_ms: int) -> Mapping[str, object]:
        try:
            if values["refusal"] is not None:
                raise MeshError("MESH-O111", values["refusal"])
            query = bind_on_demand(parse_on_demand_query(values["query"]), self._app)
            # Two changes at one time don't make the same UUID().
            salt = f"{self._environment.salt}/{values['id']}"
            count = change(query, replace(self._environment, salt=salt), now_ms)
        except MeshError as error:
            return {"error": error.to_dict()}
        except Exception as error:
            # Raised, it would end the instance again at each replay.
            log.exception("a change of a table failed")
            return {
                "error": MeshError(
                    "MESH-O110", "the on-demand query fails", detail=f"{error!r}."
                ).to_dict()
            }
        return {"changed": count}
