"""Switch of a process: whether it runs functions that apps define in Python."""

from __future__ import annotations

from typing import Final

#: Environment variable of a process that runs no function if it is "false" or "manager".  The check
#: is where the code is executed (``scripts``), so that no way of an app to a worker avoids it.
SWITCH: Final = "MESH_FUNCTIONS_PYTHON"


#: The environment of a manager's processes: functions are code execution on workers, not there.
OF_MANAGERS: Final = {SWITCH: "manager"}


def switch(is_allowed: bool) -> dict[str, str]:
    """The environment that allows or forbids functions in a process and in its children."""
    return {SWITCH: "true" if is_allowed else "false"}
