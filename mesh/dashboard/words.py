"""Words for states, the same on all pages; each has a shape and a tone, never a colour alone."""

from __future__ import annotations

from typing import Final

#: Tone of each state: its colour and its shape.
_TONES: Final = {
    "running": "good",
    "alive": "good",
    "open": "good",
    "ready": "good",
    "leads": "good",
    "same": "good",
    "kept": "good",
    "enabled": "good",
    "done": "good",
    "starting": "busy",
    "assigned": "busy",
    "stopping": "busy",
    "rescaling": "busy",
    "restoring": "busy",
    "moved": "busy",
    "scaled": "busy",
    "started": "busy",
    "added": "busy",
    "new": "busy",
    "waiting": "warn",
    "unplaced": "warn",
    "suspect": "warn",
    "closed": "warn",
    "cordoned": "warn",
    "emptying": "warn",
    "draining": "warn",
    "behind": "warn",
    "risk": "warn",
    "restarted": "warn",
    "changed": "warn",
    "dropped": "warn",
    "errors": "warn",
    "refused": "warn",
    "disabled": "warn",
    "failed": "bad",
    "fault": "bad",
    "failing": "bad",
    "retrying": "bad",
    "gone": "bad",
    "lost": "bad",
    "removed": "bad",
    "no leader": "bad",
    "no worker": "bad",
    "unreachable": "bad",
}
#: Short explanations, for tooltips and for people who use a screen reader.
WORDS: Final = {
    "running": "every instance runs",
    "starting": "every instance has a worker; some still start or move",
    "waiting": "an instance has no worker that may run it",
    "failing": "an instance fails again and again",
    "restoring": "nothing runs while a backup is restored",
    "rescaling": "a group stops, to continue with other instances or another text",
    "paused": "its instances are stopped until it is resumed",
    "undeploying": "it is being removed",
    "alive": "heartbeats arrive",
    "suspect": "a heartbeat is late",
    "gone": "no heartbeat arrives",
    "retrying": "it failed, and is started again",
    "behind": "events arrive faster than they are read",
    "unplaced": "no worker has it",
    "assigned": "its worker has not answered yet",
    "stopping": "it leaves its worker",
    "open": "it accepts instances",
    "closed": "it keeps its instances and accepts no others",
    "emptying": "its instances move away",
    "enabled": "it may sign in",
    "disabled": "it may not sign in, and its tokens are refused",
    "refused": "the user or a permission was missing, or there were too many requests",
}


def badge_kind(state: str) -> str:
    """The tone of a state: ``good``, ``busy``, ``warn``, ``bad`` or ``calm``."""
    return _TONES.get(state, "calm")
