"""Windows: what of a stream is remembered, and when it is let go.

One operator holds the windows of all instances of a partition.  Its loop over the events is native
code and does what the reference engine does, event by event; see ``machine``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.errors import MeshError
from mesh.operators.windows.followed import FollowedWindow as FollowedWindow
from mesh.operators.windows.keyed import WindowOperator as WindowOperator  # noqa: TC001
from mesh.operators.windows.plans import FOLLOWED as FOLLOWED
from mesh.operators.windows.plans import PLANS, Needs

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from mesh.plan.bound import Window


def make_window(
    window: Window,
    schema: pa.Schema,
    timer_path: int,
    *,
    expired: bool = True,
    used: Sequence[str | None] | None = None,
    followed: bool = False,
) -> WindowOperator:
    """The operator of ``window``, with nothing in it yet.

    Args:
        window: what is written, with its arguments bound.
        schema: the attributes that are kept for what is behind it.
        timer_path: its timers' place among those of other queries at one instant.
        expired: whether anything behind it looks at expired events.  A batch window that need not
            give them out keeps less.
        used: for each output of the query the attribute that it is, None where it is computed.
            That is what the engine takes for all of an event's attributes, where a window tells
            events apart by them.  None: they are those of ``schema``.
        followed: make a ``FollowedWindow``, of a window that is in ``FOLLOWED``.

    Raises:
        MeshError: MESH-O102, there is no operator for it.
    """
    plan = PLANS.get(window.name)
    if plan is None:
        raise MeshError(
            "MESH-O102",
            f'window "{window.name}" has no operator',
            detail="The planner accepted it, but this version can't run it.",
            hint="Do manager and worker have the same version?",
        )
    used = schema.names if used is None else used
    needs = Needs(schema, timer_path, expired, used, followed)
    return plan(window, needs)
