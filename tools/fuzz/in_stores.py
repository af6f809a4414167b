"""Cases whose tables and aggregations are in a store here, and in the state of the engine.

The engine has no stores, so its answer to the app without them is what a store has to give.  Our
side plays the app with ``@store`` over a new file of SQLite.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: Member of a case with further options of ``@store``; cases without it are played as they are.
STORE: Final = "store"
#: Rows stay in the database; those that one event finds are in another order there.
NOT_KEPT: Final = ", kept='false'"
OPTIONS: Final = ("", NOT_KEPT, ", @cache(size='2', cache.policy='LRU')")

_NO_PURGE: Final = "@purge(enable='false')"
_PURGE: Final = re.compile(r"@purge\((?:[^()]|\([^()]*\))*\)")


def in_store(case: Mapping[str, Any], file: Path) -> Mapping[str, Any]:
    """The case as our side plays it; ``file``: of SQLite, which is not there yet."""
    options = case.get(STORE)
    if options is None:
        return case
    store = f"@store(type='rdbms', jdbc.url='jdbc:sqlite:{file}'{options})"
    app = re.sub(r"\bdefine (table|aggregation)\b", rf"{store} define \1", case["app"])
    return {**case, "app": app}


def comparable(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """The case without what a store does otherwise on purpose; itself if there is nothing.

    A store refuses a key without a value, and deletes old rows of an aggregation with its next
    write.
    """
    app, count = _PURGE.subn(_NO_PURGE, case["app"])
    if not count:
        app = re.sub(r"\bdefine aggregation\b", rf"{_NO_PURGE} \g<0>", app)
    inputs = [_without_nulls(step) for step in case["inputs"]]
    changed = {**case, "app": app, "inputs": [step for step in inputs if step is not None]}
    return case if changed == case else changed


def _without_nulls(step: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A step without events that have a null; None without any event."""
    if "events" in step:
        kept = [event for event in step["events"] if None not in event[1]]
        return {**step, "events": kept} if kept else None
    return None if None in step.get("data", ()) else step


def has_own_order(case: Mapping[str, Any]) -> bool:
    """Whether rows that one event finds are in another order than in the state.

    >>> has_own_order({"app": "define table D (a int);", "store": ", kept='false'"})
    True
    >>> has_own_order({"app": "define table D (a int);", "store": ""})
    False
    """
    return bool(case.get(STORE))
