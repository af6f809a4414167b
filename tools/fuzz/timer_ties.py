"""Detection of answers that differ only in the order of timers due at one instant.

The engine fires them in the order in which they were set; here they fire in the order of the
queries.  A case shows little of either if nothing else happens at once.  So the order of timers is
the cause if both agree as soon as no two of them are due together.
"""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_DURATION: Final = re.compile(r"\b(\d+) (millisec(?:ond)?s?|sec(?:ond)?s?)\b")
#: Amounts by which durations become shorter, in turn: so their sums differ, too.
_LESS_MS: Final = (3, 7, 13, 19, 29, 37, 43)
#: All durations of random cases are multiples of it; events have other times.
_GRID_MS: Final = 50


def apart(case: Mapping[str, Any]) -> dict[str, Any]:
    """``case`` with each duration of its app a little shorter, and no two of its events at once.

    Steps that wait are inserted, so the numbers of steps differ from those of ``case``.
    """
    less = iter(_LESS_MS)

    def shorter(found: re.Match[str]) -> str:
        whole = int(found[1]) * (1 if found[2].startswith("m") else 1000)
        return f"{whole - next(less, 0)} milliseconds"

    is_played = any(step.get("ts") is not None for step in case["inputs"])
    steps = _played(case) if is_played else _live(case)
    return {**case, "app": _DURATION.sub(shorter, case["app"]), "inputs": steps}


def _live(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    now_ms, used, steps = 0, {0}, []
    for step in case["inputs"]:
        if "stream" in step:
            wait = next(ms for ms in count() if (now_ms + ms) % _GRID_MS not in used)
            if wait:
                steps.append({"sleep_ms": wait})
            now_ms += wait
            used.add(now_ms % _GRID_MS)
        now_ms += step.get("sleep_ms", 0)
        steps.append(step)
    return steps


def _played(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    later, used, steps = 0, set(), []
    for step in case["inputs"]:
        if (ts := step.get("ts")) is not None:
            later += next(ms for ms in count() if (ts + later + ms) % _GRID_MS not in used)
            used.add((ts + later) % _GRID_MS)
            # Times among the data are those of events.
            data = [v + later if _is_time(v, ts) else v for v in step["data"]]
            step = {**step, "ts": ts + later, "data": data}
        steps.append(step)
    return steps


def _is_time(value: Any, ts: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value - ts) <= 1000
