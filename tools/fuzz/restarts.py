"""Detection of answers that differ only because of the engine's restart.

Here an app that is started again with its last state continues without a difference; that is the
contract of every operator, and tests check it.  The engine's state changes in places: a match that
waits for an optional step is lost, a session loses events, ``not`` of a true is true.  So the
engine's restart is the cause if both agree on the case without its restarts, and our answer with
them is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

#: As docs/siddhiql.md has it.
REASON: Final = (
    "over a restart an app goes on as if none had been; the engine's may change what comes"
)
#: A step that changes nothing, so that the steps after it keep their numbers.
_NOTHING: Final = {"snapshot": "nothing"}


def without_restarts(case: Mapping[str, Any]) -> dict[str, Any] | None:
    """Replace the restarts of ``case`` by steps that do nothing.

    Returns:
        None if there are none, or if one isn't from the state of that very moment: such a restart
        sets the app back, and has to change the following output.
    """
    current: set[str] = set()
    steps = []
    for step in case["inputs"]:
        if "snapshot" in step:
            current.add(step["snapshot"])
        elif "restart" in step:
            if step["restart"] not in current:
                return None
            step = _NOTHING
        else:
            current.clear()
        steps.append(step)
    return {**case, "inputs": steps} if steps != case["inputs"] else None
