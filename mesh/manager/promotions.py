"""Promotion: a fork's text becomes that of its app, at an exact sequence.

A promotion is an edit of the running app.  Groups that change drain at a sequence and continue
there with the fork's text, so readers of the app's outputs miss nothing and see nothing twice.
Groups whose state is another one in the fork get the fork's (``mesh.manager.adoptions``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mesh.control.journal import JournalEntry
from mesh.errors import MeshError
from mesh.model.cluster import Promoted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mesh.manager.adoptions import Adoptions
    from mesh.manager.deployments import Deployments
    from mesh.manager.desired_state import DesiredState
    from mesh.manager.planning import Planner
    from mesh.model.cluster import AppRecord, ForkOrigin


@dataclass(eq=False, repr=False)
class Promotions:
    """Promotes forks."""

    _desired: DesiredState
    _deployments: Deployments
    _planner: Planner
    #: Removes the app of a name for the user ``by``.
    _undeploy: Callable[..., Awaitable[None]]
    _note: Callable[[JournalEntry], None]
    _adoptions: Adoptions

    def app_of(self, fork: str) -> str:
        """The app that a fork comes from; MESH-A404, or MESH-C154 for an app that is no fork."""
        return self._origin(fork).app

    async def promote(self, fork: str, *, replaces: str | None = None, by: str = "") -> Promoted:
        """Give the app of a fork the fork's text, and remove the fork.

        Args:
            fork: its name.
            replaces: the app that is to have the text; None for the one it was forked from.
            by: the user.

        Raises:
            MeshError: MESH-A404 for an app that is not there; MESH-C154 where the app would not be
                the fork; as ``Deployments.update`` for the edit.
        """
        origin = self._origin(fork)
        app = self._desired.get(origin.app).value
        if replaces not in (None, origin.app):
            raise _refused(fork, f'it is a fork of "{origin.app}", not of "{replaces}"')
        if app.incarnation != origin.incarnation:
            raise _refused(fork, f'app "{origin.app}" was restored or deployed again since')
        if origin.until:
            raise _refused(fork, "it has an end (--until)")
        changes = None
        if not app.adopting:
            changes = await self._edit(fork, app, origin, by)
        if self._desired.get(origin.app).value.adopting:
            await self._adoptions.finish(origin.app)
        await self._undeploy(fork, by=by)
        message = f"promoted fork {fork}: app {origin.app} has its text"
        self._note(JournalEntry(message, by=by and f"user {by}", app=origin.app))
        return Promoted(origin.app, fork, changes)

    async def _edit(self, fork: str, app: AppRecord, origin: ForkOrigin, by: str) -> Any:
        """Give the app the fork's text; groups whose state is to be the fork's wait for it."""
        text, groups, reasons = await self._planner.promotion(
            app.spec, origin.text or app.spec.text
        )
        if reasons:
            raise MeshError(
                "MESH-C154",
                f'fork "{fork}" can\'t be promoted with its state',
                detail=f"A state of the fork has no place in the app: {'; '.join(reasons)}.",
                hint="'mesh deploy' with its text edits the app, with the app's states; "
                "'mesh diff' shows which are kept.",
            )
        if groups:
            after = await self._planner.plan(text)
            await self._adoptions.prepare(app, self._desired.get(fork).value, after, groups)
        done = await self._deployments.update(
            text, undeploy=self._undeploy, by=by, reset=groups, adopting=groups
        )
        return done.changes

    def _origin(self, fork: str) -> ForkOrigin:
        origin = self._desired.get(fork).value.fork
        if origin is None:
            raise _refused(fork, "it is no fork")
        return origin


def _refused(fork: str, why: str) -> MeshError:
    return MeshError(
        "MESH-C154",
        f'"{fork}" can\'t be promoted: {why}',
        hint="'mesh deploy' with its text edits an app.",
    )
