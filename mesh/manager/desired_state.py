"""Desired state in the apps bucket: lookup in the local view, and writes by compare-and-set.

Waits for conditions of the cluster are here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.control.collisions import address_collision, collision_of
from mesh.errors import MeshError
from mesh.jetstream import kv
from mesh.jetstream.connection import refusals, unreachable
from mesh.model import codec, names
from mesh.model.access import Permission, sees
from mesh.plan.diagnostics import nearest
from mesh.plan.fork import read_by_others

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.control.snapshot import Revisioned
    from mesh.jetstream.watch import ClusterView
    from mesh.model.app import AppSpec
    from mesh.model.cluster import AppRecord, NodeOrder


#: Room for the headers of a write.
HEADERS_BYTES: Final = 1024


class DesiredState:
    """Records of apps and node orders, as any manager reads and writes them."""

    def __init__(self, client: Client, view: ClusterView, clock: Clock) -> None:
        self._client = client
        self._js = client.jetstream()
        self._view = view
        self._clock = clock

    def find(self, app: str) -> Revisioned[AppRecord] | None:
        """The record of ``app`` with its revision; None if it is not deployed."""
        return self._view.snapshot().app(app)

    def get(self, app: str) -> Revisioned[AppRecord]:
        """The record of ``app`` with its revision; MESH-A404 if it is not deployed."""
        entry = self.find(app)
        if entry is None:
            self._refuse_unreadable(names.app_key(app))
            apps = (seen.value.spec.name for seen in self._view.snapshot().apps)
            app_names = sorted(name for name in apps if sees(Permission.APPS_VIEW, name))
            raise MeshError(
                "MESH-A404",
                f'app "{app}" is not deployed',
                # Those that the user may see.
                detail=f"Deployed are: {', '.join(app_names) or 'none'}.",
                hint=nearest(app, app_names),
            )
        return entry

    def _refuse_unreadable(self, key: str) -> None:
        """Refuse a record whose newest version can't be read: MESH-A409."""
        reason = self._view.unreadable.get((names.APPS_BUCKET, key))
        if reason is not None:
            raise MeshError(
                "MESH-A409",
                f'record "{key}" of the bucket {names.APPS_BUCKET} is unreadable',
                detail=f"{reason.rstrip('.')}. It is not changed, and its app does not run.",
                hint="Start managers of the version that has written it; or delete it with the "
                f"login of an administrator, which frees the name: 'nats kv del "
                f"{names.APPS_BUCKET} {key}'.",
            )

    def record(self, app: str) -> AppRecord | None:
        """The record of ``app``; None if it is not deployed."""
        entry = self.find(app)
        return entry.value if entry is not None else None

    def spec(self, app: str) -> AppSpec:
        """The plan of ``app``; MESH-A404 if it is not deployed."""
        return self.get(app).value.spec

    def revision(self, app: str) -> int:
        """The newest known revision of the record of ``app``; 0 if it was never written."""
        return self._view.revision(names.APPS_BUCKET, names.app_key(app))

    def refuse_while_read(self, app: str) -> None:
        """Refuse to remove an app whose channels a fork reads: MESH-A409."""
        records = (seen.value for seen in self._view.snapshot().apps)
        specs = (record.spec for record in records if not record.deleting)
        forks = sorted(set(read_by_others(specs, app).values()))
        if forks:
            raise MeshError(
                "MESH-A409",
                f'the input of app "{app}" is read by its fork "{forks[0]}"',
                hint=f"'mesh undeploy {forks[0]}' first, or 'mesh promote {forks[0]}'.",
            )

    def check_size(self, record: AppRecord) -> None:
        """Refuse a record that NATS could not store in one message: MESH-A413."""
        size, most = len(codec.encode(record)), self._client.max_payload
        if size > most - HEADERS_BYTES:
            raise MeshError(
                "MESH-A413",
                f'the plan of app "{record.spec.name}" has {size} bytes',
                detail=f"NATS takes {most} bytes in a message (max_payload), of which headers need "
                f"{HEADERS_BYTES}.",
                hint="Divide the app: one inserts into a stream, another reads it.",
            )

    async def write_app(self, record: AppRecord, revision: int | None = None) -> int:
        """Write the record of an app; see ``write``.

        Raises:
            MeshError: MESH-C123 when instances of a group that the app gets would have the names of
                another app's; MESH-C124 when a source would accept at another app's address.
        """
        apps = [seen.value.spec for seen in self._view.snapshot().apps]
        before = self.record(record.spec.name)
        clash = collision_of(record.spec, before.spec if before is not None else None, apps)
        if clash is not None:
            raise MeshError(
                "MESH-C123",
                f'instances of group "{clash.group}" of app "{record.spec.name}" would have the '
                "names of another app's",
                detail=f'App "{clash.other_app}" has a group "{clash.other_group}", and instances '
                "are named APP-GROUP-NUMBER.",
                hint="Rename the app or the group.",
            )
        taken = None if record.deleting else address_collision(record.spec, apps)
        if taken is not None:
            raise MeshError(
                "MESH-C124",
                f'a source of app "{record.spec.name}" would accept at {taken[0]}, as app '
                f'"{taken[1]}" does',
                hint="Give it another port or path.",
            )
        return await self.write(names.app_key(record.spec.name), record, revision)

    async def write(
        self, key: str, record: AppRecord | NodeOrder, revision: int | None = None
    ) -> int:
        """Write a key of the apps bucket if its revision is ``revision``, or the newest known.

        Returns:
            The new revision.

        Raises:
            RevisionConflict: another writer was first.
        """
        self._refuse_unreadable(key)
        if revision is None:
            revision = self._view.revision(names.APPS_BUCKET, key)
        data = codec.encode(record)
        try:
            written = await kv.write(self._js, names.APPS_BUCKET, key, data, revision=revision)
        except kv.RevisionConflict:
            await self._view.check(names.APPS_BUCKET, key)
            raise
        self._view.took_write(names.APPS_BUCKET, key, record, written)
        return written

    async def change(
        self, key: str, make: Callable[[], AppRecord | NodeOrder | None], within_s: float
    ) -> int | None:
        """Write the record that ``make`` derives from the view; retry when another writer is first.

        Returns:
            The time of the write, milliseconds since 1970; None if ``make`` returned None.

        Raises:
            MeshError: MESH-A503 when NATS does not answer, or others write for ``within_s``; errors
                of ``make``.
        """
        deadline_s = self._clock.monotonic_s() + within_s
        while True:
            version = self._view.version
            record = make()
            if record is None:
                return None
            at_ms = self._clock.wall_ms()
            try:
                with refusals():
                    await self.write(key, record)
            except kv.RevisionConflict as conflict:
                left_s = deadline_s - self._clock.monotonic_s()
                if left_s <= 0:
                    raise unreachable(conflict) from conflict
                await self._view.changed(version, left_s)
                continue
            return at_ms

    async def wait_gone(self, app: str, timeout_s: float) -> None:
        """Wait until ``app`` is removed; MESH-A409 after ``timeout_s``."""
        if not await until(self._view, self._clock, timeout_s, lambda: self.find(app) is None):
            raise MeshError(
                "MESH-A409",
                f'app "{app}" is still being undeployed',
                hint="Deploy it again in a moment.",
            )


async def until(
    view: ClusterView, clock: Clock, timeout_s: float, holds: Callable[[], bool]
) -> bool:
    """Wait until a condition holds of the view; returns whether it does within ``timeout_s``.

    Args:
        view: the condition is evaluated whenever it changes.
        clock: measures the time.
        timeout_s: seconds.
        holds: the condition; its errors end the wait.
    """
    deadline_s = clock.monotonic_s() + timeout_s
    while True:
        version = view.version
        if holds():
            return True
        left_s = deadline_s - clock.monotonic_s()
        if left_s <= 0:
            return False
        await view.changed(version, left_s)


async def until_removed(
    view: ClusterView, clock: Clock, app: str, timeout_s: float, hint: str
) -> None:
    """Wait until the removal of channels and groups of earlier texts of ``app`` has ended.

    Returns at once for an app that is not there.

    Args:
        view: the local view of the cluster.
        clock: measures the time.
        app: its name.
        timeout_s: seconds.
        hint: what to do when it takes longer.

    Raises:
        MeshError: MESH-A409 when something is still being removed after ``timeout_s``.
    """

    def is_free() -> bool:
        entry = view.snapshot().app(app)
        return entry is None or entry.value.retired is None or not entry.value.retired.removing

    if not await until(view, clock, timeout_s, is_free):
        raise MeshError(
            "MESH-A409",
            f'parts of an earlier text of app "{app}" are still being removed',
            hint=hint,
        )
