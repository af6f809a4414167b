"""Declaration of past events in an app's text; no host opens them."""

from __future__ import annotations

from typing import Final

from mesh.connect.spec import Guarantee, Option, Role, Spec

HISTORY_SOURCE: Final = Spec(
    "history",
    Role.SOURCE,
    "Past events that a new app has seen when it starts; see docs/time.md.",
    (
        Option(
            "path",
            is_required=True,
            doc="Files of the manager's machine, a table, or a stream: as 'mesh backfill' takes "
            "them.",
        ),
        Option(
            "time",
            doc="Column with the times of events; of a stream, by default, those of its messages.",
        ),
        Option(
            "until",
            doc="The last sequence of the live stream that they include, or a time before which "
            "they are read; by default they end before its first message.",
        ),
    ),
    guarantee=Guarantee.EXACTLY_ONCE,
    condition="Read once, by the deploy of a new app; an edit of the app reads nothing.",
)
