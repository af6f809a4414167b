"""Detection of answers that differ only because of the engine's restart.

Here an app that is started again with its last state goes on as if nothing had been; that is the
contract of every operator, and tests hold each to it.  The engine's has changed, in places: a match
that waits for an optional step is gone, a session loses what comes, ``not`` of a true is true.  So
where both agree on a case played without its restarts, and ours with them is the same again, what
differs is what the engine's restart has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

#: As docs/siddhiql.md has it.
REASON: Final = (
    "over a restart an app goes on as if none had been; the engine's may change what comes"
)
#: A step that changes nothing, so that those behind it keep their numbers.
_NOTHING: Final = {"snapshot": "nothing"}


def without_restarts(case: Mapping[str, Any]) -> dict[str, Any] | None:
    """``case`` with steps that do nothing in place of its restarts.

    Returns:
        None where there are none, or where one isn't from the state of that very moment: it sets
        the app back, and has to change what comes.
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
